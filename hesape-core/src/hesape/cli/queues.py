"""`hesape clear`, `pause` and `resume`: one queue, over every tenant."""

from __future__ import annotations

import click

from hesape.cli.session import Session, command, force_option, queue_argument


@click.command()
@queue_argument
@force_option
@command
def clear(session: Session, queue: str, *, force: bool) -> None:
    """Remove what is pending, delayed and reserved in a queue; failed jobs stay."""
    connection, name = session.target(queue)
    size = connection.counts(name).size
    session.confirm(f"Remove {size} jobs of every tenant from {connection.name}:{name}?", force=force)
    removed = connection.operator().clear(name)
    session.answer(
        {"connection": connection.name, "queue": name, "removed": removed},
        f"removed {removed} jobs from {connection.name}:{name}",
    )


@click.command()
@queue_argument
@command
def pause(session: Session, queue: str) -> None:
    """Let no worker take jobs from a queue, until it is resumed. Running jobs go on."""
    connection, name = session.target(queue)
    connection.operator().pause(name)
    session.answer({"connection": connection.name, "queue": name, "paused": True}, f"paused {connection.name}:{name}")


@click.command()
@queue_argument
@command
def resume(session: Session, queue: str) -> None:
    """Let workers take jobs from a queue again."""
    connection, name = session.target(queue)
    connection.operator().resume(name)
    session.answer({"connection": connection.name, "queue": name, "paused": False}, f"resumed {connection.name}:{name}")
