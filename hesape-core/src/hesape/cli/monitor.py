"""`hesape monitor`: whether queues grow over a limit, for a check or an alarm."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from hesape.cli import output, suggest
from hesape.cli.session import Duration, Session, command
from hesape.errors import StoreError
from hesape.events import QueueBusy

if TYPE_CHECKING:
    from hesape.queue import Queue

_Target: TypeAlias = tuple[str, str]
"""A connection and a queue."""


@click.command()
@click.argument("queues", metavar="[CONNECTION:]QUEUE...", nargs=-1, required=True, shell_complete=suggest.targets)
@click.option("--max", "most", type=click.IntRange(1), default=1_000, show_default=True, help="Busy from this size on.")
@click.option("--every", type=Duration(), help="Look again after this long, such as 30 or 5m, until interrupted.")
@command
def monitor(session: Session, queues: tuple[str, ...], most: int, every: float | None) -> int:
    """Compare the sizes of queues, all that is still to be done there, with a limit. A busy one exits with 1.

    Observers learn of each queue that is busy; with --every only when it wasn't at the look before,
    and a store that can't be asked is an error on standard error, after which the looks go on.
    """
    if every == 0:
        message = "--every 0: expected a time above 0"
        raise click.UsageError(message, click.get_current_context())
    targets = {(queue.name, name): queue for queue, name in map(session.target, queues)}
    look = functools.partial(_look, session, targets, most, goes_on=every is not None)
    busy = look(frozenset())
    if every is not None:
        with suppress(KeyboardInterrupt):
            while True:
                time.sleep(every)
                busy = look(busy)
    return int(bool(busy))


def _look(
    session: Session, targets: Mapping[_Target, Queue], most: int, before: frozenset[_Target], *, goes_on: bool
) -> frozenset[_Target]:
    """Look once, and tell of what is busy and wasn't `before`; which are busy, or were if they can't be looked at."""
    rows: dict[_Target, dict[str, Any]] = {}
    away: set[str] = set()
    for target, queue in targets.items():
        if queue.name in away:
            continue
        try:
            rows[target] = _row(queue, target[1], most)
        except StoreError as error:
            if not goes_on:
                raise
            away.add(queue.name)
            message = f"{queue.name}: {error}"  # not every driver says which
            output.error(error.code, message, retryable=error.retryable, as_json=session.json)
    busy = frozenset(target for target, row in rows.items() if row["busy"])
    for target in busy - before:
        if (notify := targets[target].notify) is not None:
            notify(QueueBusy(connection=target[0], queue=target[1], size=rows[target]["size"]))
    if rows:
        _show(session, list(rows.values()), most)
    return busy | (before - rows.keys())


def _row(queue: Queue, name: str, most: int) -> dict[str, Any]:
    counts = queue.counts(name)
    return {
        "connection": queue.name,
        "queue": name,
        "pending": counts.pending,
        "delayed": counts.delayed,
        "reserved": counts.reserved,
        "size": counts.size,
        "busy": counts.size >= most,
    }


def _show(session: Session, rows: list[dict[str, Any]], most: int) -> None:
    if session.json:
        output.document({"max": most, "busy": any(row["busy"] for row in rows), "queues": rows})
    else:
        columns = ("pending", "delayed", "reserved", "size")
        shown = [
            (f"{row['connection']}:{row['queue']}", *(row[name] for name in columns), "busy" if row["busy"] else "")
            for row in rows
        ]
        output.table(("queue", *columns, ""), shown, empty="")
