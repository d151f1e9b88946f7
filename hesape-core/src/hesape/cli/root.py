"""The root command: it finds the others by name and turns every error into a line and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, cast

import click
from click.shell_completion import CompletionItem

from hesape.cli import output
from hesape.cli.output import Output, UnwritableError, silence
from hesape.config import nearest
from hesape.errors import HesapeError

FAILURE: Final = 1
USAGE: Final = 2


class _Entry(NamedTuple):
    module: str
    attribute: str
    summary: str


COMMANDS: Final = {
    "clear": _Entry("queues", "clear", "Remove the waiting and running jobs of a queue."),
    "completion": _Entry("completion", "completion", "Print what a shell needs to complete hesape."),
    "config": _Entry("config", "config", "Show the configuration, its secrets masked."),
    "demo": _Entry("demo", "demo", "See it work: push, work, kill, retry, park, refuse."),
    "doctor": _Entry("doctor", "doctor", "Look for what is wrong or will be."),
    "drivers": _Entry("drivers", "drivers", "List the installed drivers and observers, and their problems."),
    "failed": _Entry("failed", "failed", "List, show, retry and remove failed jobs."),
    "migrate": _Entry("migrate", "migrate", "Bring the store's tables up to date."),
    "monitor": _Entry("monitor", "monitor", "Tell whether queues grow over a limit."),
    "pause": _Entry("queues", "pause", "Let no worker take jobs from a queue."),
    "push": _Entry("push", "push", "Push a job."),
    "queues": _Entry("status", "queues", "List the queues and how many jobs they hold."),
    "restart": _Entry("restart", "restart", "Have the workers finish what they run and start anew."),
    "resume": _Entry("queues", "resume", "Undo pause."),
    "status": _Entry("status", "status", "Show how a connection stands."),
    "work": _Entry("work", "work", "Run jobs."),
    "workers": _Entry("status", "workers", "List the workers and what they hold."),
}
"""Each command, where it lives, and its line in `--help`: neither listing nor running one loads the others."""


class _Root(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(f"hesape.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command)  # noqa: S101 - the table above says so
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            message = f"no command {args[0]!r}{nearest(args[0], COMMANDS)}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in sorted(COMMANDS) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=COMMANDS[name].summary) for name in names]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in sorted(COMMANDS.items())])


@click.group(cls=_Root, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("hesape-core"), message="hesape %(version)s")
@click.pass_context
def root(ctx: click.Context) -> int | None:
    """Jobs under a grant, in the store of your choice.

    Exit codes: 0 done, 1 failure, 2 usage, 12 stopped because of its memory.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(USAGE)
    return None


def run(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; every error ends as `error[code]: message` on standard error."""
    args = list(sys.argv[1:] if argv is None else argv)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed before we began: its number must not become a database's
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open while we are
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a name outside the terminal's encoding must not end us
    stdout = sys.stdout
    sys.stdout = cast("TextIO", Output(stdout))
    try:
        answer: Any = root.main(args, prog_name="hesape", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - the last frame: everything becomes an exit code
        return _report(error, as_json="--json" in args)
    except KeyboardInterrupt:
        return FAILURE
    finally:
        sys.stdout = stdout
    return answer if isinstance(answer, int) else 0


def _report(error: Exception, *, as_json: bool) -> int:
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()  # whoever read us has gone; nothing more is to be said, not even at exit
        return FAILURE
    code, message, retryable, exit_code = _described(error)
    try:
        output.error(code, message, retryable=retryable, as_json=as_json)
    except OSError:  # whoever can't be told has the exit code
        silence(sys.stderr)
    return exit_code


def _described(error: Exception) -> tuple[str, str, bool, int]:
    if isinstance(error, HesapeError):
        return error.code, str(error), error.retryable, FAILURE
    if isinstance(error, click.UsageError):
        where = error.ctx.command_path if error.ctx else "hesape"
        return "usage", f"{error.format_message().rstrip('.')} (see {where} --help)", False, USAGE
    if isinstance(error, UnwritableError):
        silence(sys.stdout)
        return "output", f"standard output can't be written: {error}", False, FAILURE
    if isinstance(error, click.Abort):
        return "aborted", "stopped before it was done", False, FAILURE
    if isinstance(error, click.ClickException):
        return "declined", error.format_message(), False, FAILURE
    traceback.print_exception(error)
    return "internal", f"{type(error).__name__}: {error}", False, FAILURE
