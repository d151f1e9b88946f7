"""`hesape restart`: a message to every worker of a connection, wherever it runs."""

from __future__ import annotations

import click

from hesape.cli.session import Session, command, connection_argument
from hesape.worker.restart import request_restart


@click.command()
@connection_argument
@command
def restart(session: Session, connection: str | None) -> None:
    """Have the workers of CONNECTION, by default of the default one, finish what they run and start anew.

    Their processes are replaced by fresh ones, which load the application's code again.
    """
    queue = session.queue(connection)
    request_restart(queue.driver)
    session.answer(
        {"connection": queue.name, "restart": True},
        f"asked the workers of {queue.name} to start anew; each does within seconds, after what it runs",
    )
