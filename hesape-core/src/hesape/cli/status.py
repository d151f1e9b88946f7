"""`hesape status`, `queues` and `workers`: how a connection stands, without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hesape import retry, times
from hesape.cli import output
from hesape.cli.session import Session, command

if TYPE_CHECKING:
    from hesape.queue import Queue


class _View(NamedTuple):
    now_us: int
    rows: list[dict[str, Any]]


@click.command()
@command
def status(session: Session) -> None:
    """Show the store behind a connection, its queues and its workers."""
    queue = session.queue()
    driver = queue.driver
    product = retry.insist(lambda _: driver.ping())
    view, working = _look(queue), queue.operator().workers()
    totals = {name: sum(row[name] for row in view.rows) for name in ("pending", "delayed", "reserved", "failed")}
    facts = {"connection": queue.name, "driver": driver.spec.name, "store": product, "workers": len(working)}
    if session.json:
        output.document({**facts, **totals, "now": output.iso(view.now_us), "queues": view.rows})
        return
    output.pairs({**facts, "jobs": ", ".join(f"{count} {name}" for name, count in totals.items())})
    _show(view)


@click.command()
@command
def queues(session: Session) -> None:
    """List the queues that hold anything or are paused."""
    view = _look(session.queue())
    if session.json:
        output.document({"queues": view.rows})
    else:
        _show(view)


@click.command()
@command
def workers(session: Session) -> None:
    """List the registered workers, when they were last heard of, and what they hold."""
    queue = session.queue()
    found, now_us = queue.operator().workers(), retry.insist(lambda _: queue.driver.now())
    if session.json:
        rows = [
            {"worker": one.worker, "beat": output.iso(one.beat_us), "held": one.held, "since": output.iso(one.since_us)}
            for one in found
        ]
        output.document({"now": output.iso(now_us), "workers": rows})
        return
    output.table(
        ("worker", "heard of", "holds", "since"),
        [(one.worker, output.age(one.beat_us, now_us), one.held, output.age(one.since_us, now_us)) for one in found],
        empty="no workers",
    )


def _look(queue: Queue) -> _View:
    paused = queue.operator().paused()
    rows = [_row(queue, name, paused=name in paused) for name in queue.queues()]
    return _View(retry.insist(lambda _: queue.driver.now()), rows)


def _row(queue: Queue, name: str, *, paused: bool) -> dict[str, Any]:
    # A name from the store is looked up as it is, whoever wrote it there.
    counts = retry.insist(lambda _: queue.driver.counts(name))
    oldest = retry.insist(lambda _: queue.driver.oldest_pending(name))
    return {
        "queue": name,
        "pending": counts.pending,
        "delayed": counts.delayed,
        "reserved": counts.reserved,
        "failed": counts.failed,
        "size": counts.size,
        "oldest_pending": None if oldest is None else times.from_us(oldest),
        "paused": paused,
    }


def _show(view: _View) -> None:
    columns = ("queue", "pending", "delayed", "reserved", "failed")
    rows = []
    for row in view.rows:
        oldest = row["oldest_pending"]
        waits = "" if oldest is None else output.age(times.to_us(oldest), view.now_us)
        rows.append((*(row[name] for name in columns), waits, "paused" if row["paused"] else ""))
    output.table((*columns, "waits", ""), rows, empty="no queue holds anything")
