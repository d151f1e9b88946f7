"""`hesape work`: a supervisor and its worker processes."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hesape.cli import suggest
from hesape.cli.session import Duration, Session, command, connection_argument
from hesape.config import APP_VARIABLE
from hesape.errors import ArgumentInvalidError, ConfigError, NameInvalidError
from hesape.worker.options import Settle, WorkerOptions, read_queues

if TYPE_CHECKING:
    from hesape.app import App
    from hesape.queue import Queue

_NAMES: Final = {
    "memory": "memory_mib",
    "max_time": "max_time_s",
    "timeout": "timeout_s",
    "lease": "lease_s",
    "sleep": "sleep_s",
    "rest": "rest_s",
    "grace": "grace_s",
}
"""What options are called on the command line and in `[worker]`, where it isn't what `WorkerOptions` calls them."""


class _Limit(Duration):
    """A duration, or a negative number for none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return -1.0 if str(value).startswith("-") else super().convert(value, param, ctx)


@click.command()
@connection_argument
@click.option(
    "--app", "reference", required=True, envvar=APP_VARIABLE, metavar="M:A", help="The App, such as jobs:app."
)
@click.option(
    "--queue",
    metavar="QUEUES",
    shell_complete=suggest.queues,
    help="high,default in strict order, or high=3,low=1 by weight.",
)
@click.option("--concurrency", type=int, help="Handlers at the same time in one process; 4.")
@click.option("--processes", type=int, help="Worker processes; 1.")
@click.option("--prefetch", type=int, help="Jobs held ready; by default as many as their duration makes worthwhile.")
@click.option(
    "--settle",
    type=click.Choice([str(one) for one in Settle]),
    help="How done jobs are deleted: in small batches, or each.",
)
@click.option("--once", is_flag=True, default=None, help="Run one job, if one is due, and stop.")
@click.option("--stop-when-empty", is_flag=True, default=None, help="Stop when nothing is due and nothing reserved.")
@click.option("--max-jobs", type=int, help="Stop each process after this many jobs.")
@click.option("--max-time", type=Duration(), help="Stop, or with several processes replace, one that is this old.")
@click.option("--memory", type=int, help="The same for one with this many MiB resident; exit code 12.")
@click.option("--timeout", type=_Limit(), help="How long a handler may run; 5m. Negative: no limit.")
@click.option("--tries", type=int, help="Deliveries before a job is parked; 5. Negative: no limit.")
@click.option("--lease", type=Duration(), help="How long a job is reserved; renewed while it runs; 60.")
@click.option("--sleep", type=Duration(), help="How often an idle worker looks when nothing wakes it; 1.")
@click.option("--rest", type=Duration(), help="How long a slot rests after each job; 0.")
@click.option("--grace", type=Duration(), help="How long running jobs may go on when asked to stop; 25.")
@click.option("--name", help="What the worker's ids begin with; by default the machine's name.")
@click.option("--stdin", "from_parent", is_flag=True, help="Run what the driver background hands over; it starts this.")
@click.option("-v", "--verbose", is_flag=True, help="Log every job.")
@command
def work(
    session: Session,
    /,
    connection: str | None,
    reference: str,
    *,
    queue: str | None,
    from_parent: bool,
    verbose: bool,
    **given: Any,
) -> int:
    """Run the jobs of CONNECTION, by default of the default one, until told to stop.

    TERM, INT and HUP stop gracefully, a second one at once. USR1 stops fetching, USR2 fetches again.
    """
    from hesape.app import load_app
    from hesape.config import FILE_VARIABLE
    from hesape.worker.launch import Launch, log_to_stderr
    from hesape.worker.supervisor import Supervisor

    if session.file is not None:
        os.environ[FILE_VARIABLE] = str(Path(session.file).absolute())
    level = logging.DEBUG if verbose else logging.INFO
    if from_parent:
        log_to_stderr(level, as_json=session.json)
        return _serve(reference, connection or session.chosen, queue, given)
    app = load_app(reference)
    log_to_stderr(level, as_json=session.json)
    options = _options(app, queue, given)
    opened = app.connection(connection or session.chosen)
    launch = Launch(app=reference, connection=opened.name, options=options, log_level=level, log_json=session.json)
    supervisor = Supervisor(opened, app.handlers, launch)
    logging.getLogger("hesape.worker").info("%s", _greeting(app, opened, options))
    try:
        return supervisor.run()
    finally:
        app.close()


def _serve(reference: str, connection: str | None, queue: str | None, given: dict[str, Any]) -> int:
    from hesape.drivers.local.inside import serve

    excess = [name for name, value in {"queue": queue, **given}.items() if value is not None]
    if excess:
        message = f"--{excess[0].replace('_', '-')} doesn't go with --stdin: the connection's table has its options"
        raise click.UsageError(message, click.get_current_context(silent=True))
    return serve(reference, connection)


def _options(app: App, queue: str | None, given: dict[str, Any]) -> WorkerOptions:
    """Flags over the file's `[worker]` over the defaults."""
    found = {**app.configuration.worker, **{name: value for name, value in given.items() if value is not None}}
    try:
        queues, weights = read_queues(queue if queue is not None else found.pop("queue", ""))
        found.pop("queue", None)
        wanted = {_NAMES.get(name, name): value for name, value in found.items()}
        options = WorkerOptions(queues=queues, weights=weights, **wanted)
    except (ArgumentInvalidError, NameInvalidError) as error:
        raise click.UsageError(str(error), click.get_current_context(silent=True)) from error
    if options.once and options.processes > 1:
        message = "--once is one job: it can't be shared by several processes"
        raise click.UsageError(message, click.get_current_context(silent=True))
    if not app.handlers.names:
        message = "the App has no handlers: every job would be parked"
        raise ConfigError(message)
    return options


def _greeting(app: App, queue: Queue, options: WorkerOptions) -> str:
    place = getattr(queue.driver, "path", None)
    where = f"{queue.driver.spec.name}, {place}" if place is not None else queue.driver.spec.name
    weights = options.weights or [0] * len(options.queues)
    queues = ", ".join(
        f"{name}={weight}" if weight else name for name, weight in zip(options.queues, weights, strict=True)
    )
    handlers = ", ".join(app.handlers.names)
    return (
        f"working connection {queue.name} ({where}), queues {queues}:"
        f" {options.processes} x {options.concurrency} slots, handlers {handlers}"
    )
