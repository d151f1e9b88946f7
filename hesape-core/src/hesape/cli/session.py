"""What every command shares: the options that choose a connection, and the question before anything is destroyed."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, cast

import attrs
import click

from hesape import config
from hesape.cli import output, suggest
from hesape.jobs import DEFAULT_QUEUE

if TYPE_CHECKING:
    from hesape.config import Configuration
    from hesape.manager import Manager
    from hesape.queue import Queue

P = ParamSpec("P")
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw]?)")


class Declined(click.ClickException):
    """Somebody answered no."""

    def __init__(self) -> None:
        """Say what that means."""
        super().__init__("nothing was changed")


@attrs.frozen(kw_only=True, slots=False)
class Session:
    """One call of one command."""

    file: str | None
    chosen: str | None
    """The connection that `--connection` names."""
    json: bool

    @functools.cached_property
    def configuration(self) -> Configuration:
        """The configuration, read when it is first needed."""
        return config.load(self.file)

    @functools.cached_property
    def manager(self) -> Manager:
        """The connections."""
        from hesape.manager import Manager

        return Manager(self.configuration)

    def queue(self, connection: str | None = None) -> Queue:
        """A connection: the one named, else `--connection`, else the default."""
        return self.manager.connection(connection or self.chosen)

    def stores(self, queue: Queue) -> list[Queue]:
        """The connection itself, or those that stand behind a failover connection."""
        from hesape.drivers.failover.driver import FailoverDriver

        if not isinstance(queue.driver, FailoverDriver):
            return [queue]
        return [store for name in queue.driver.members for store in self.stores(self.queue(name))]

    def target(self, text: str) -> tuple[Queue, str]:
        """The connection and the queue that `text` names.

        `x:y` is queue y of connection x if there is such a connection, else a queue of that name; `:x:y` is always a
        queue, and so is everything when `--connection` is given.
        """
        if text.startswith(":"):
            return self.queue(), text[1:] or DEFAULT_QUEUE
        connection, colon, queue = text.partition(":")
        if colon and self.chosen is None and connection in self.configuration.tables:
            return self.queue(connection), queue or DEFAULT_QUEUE
        return self.queue(), text or DEFAULT_QUEUE

    def answer(self, data: Any, line: str) -> None:
        """Print what was done: a document for machines, a line for people."""
        if self.json:
            output.document(data)
        else:
            click.echo(output.printable(line))

    def confirm(self, question: str, *, force: bool) -> None:
        """Ask before anything is destroyed. `--force` is a yes; without a terminal to ask it is refused."""
        if force:
            return
        if not sys.stdin.isatty():
            message = f"{question} There is no terminal to ask: add --force to do it"
            raise click.UsageError(message, click.get_current_context(silent=True))
        if not click.confirm(output.printable(question), err=True):
            raise Declined

    def close(self) -> None:
        """Close what was opened."""
        if "manager" in vars(self):
            self.manager.close()


def command(function: Callable[Concatenate[Session, P], int | None]) -> Callable[P, int | None]:
    """Give a command the shared options, and a `Session` as its first argument."""

    @click.option("--config", "file", metavar="FILE", help="Read this file instead of looking for hesape.toml.")
    @click.option(
        "-c",
        "--connection",
        "chosen",
        metavar="NAME",
        shell_complete=suggest.connections,
        help="Use this connection, not the default one.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
    @functools.wraps(function)
    def call(*args: Any, file: str | None, chosen: str | None, as_json: bool, **kwargs: Any) -> int | None:
        session = Session(file=file, chosen=chosen, json=as_json)
        try:
            return function(session, *args, **kwargs)
        finally:
            session.close()

    return cast("Callable[P, int | None]", call)


class Duration(click.ParamType):  # type: ignore[type-arg]  # it is generic in new versions of click alone
    """Seconds, or a number with ms, s, m, h, d or w."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        found = _DURATION.fullmatch(str(value))
        if found is None:
            self.fail(
                f"{value!r}: expected seconds, or a number with ms, s, m, h, d or w, such as 90 or 15m", param, ctx
            )
        return float(found.group(1)) * _SECONDS[found.group(2)]


force_option = click.option("--force", is_flag=True, help="Don't ask.")
queue_argument = click.argument("queue", metavar="[CONNECTION:]QUEUE", shell_complete=suggest.targets)
connection_argument = click.argument("connection", required=False, shell_complete=suggest.connections)
