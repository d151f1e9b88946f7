"""`hesape push`: one job, under a grant of the system."""

from __future__ import annotations

import os
import sys

import click

from hesape.cli import suggest
from hesape.cli.session import Duration, Session, command
from hesape.grants import system_grant
from hesape.jobs import DEFAULT_QUEUE


@click.command()
@click.argument("name")
@click.argument("payload", metavar="[JSON]", default="{}")
@click.option("--tenant", required=True, help="For whom the job runs.")
@click.option("--action", required=True, help="What it is authorised for: its handler's action, by default its name.")
@click.option(
    "--queue",
    default="",
    metavar="[CONNECTION:]QUEUE",
    shell_complete=suggest.targets,
    help="Where to, instead of the default queue.",
)
@click.option("--delay", type=Duration(), default=0.0, help="Due after this long, such as 90 or 15m.")
@click.option("--priority", type=int, help="From -32768 to 32767, lower runs sooner; 100 by default.")
@click.option("--id", "job_id", help="The job's id, a UUID: pushing the same again stores nothing new.")
@command
def push(
    session: Session,
    name: str,
    payload: str,
    tenant: str,
    action: str,
    queue: str,
    delay: float,
    priority: int | None,
    job_id: str | None,
) -> None:
    """Push the job NAME with the payload JSON, by default {}; - reads it from standard input.

    The grant is the system's, for exactly this tenant and action. The payload is stored as it is given.
    """
    data = sys.stdin.buffer.read() if payload == "-" else os.fsencode(payload)
    connection, queue_name = session.target(queue)
    job = connection.push_raw(
        system_grant(action, tenant),
        name,
        data,
        queue=queue_name if queue else "",
        delay=delay,
        priority=priority,
        id=job_id,
    )
    where = f"{connection.name}:{job.queue or DEFAULT_QUEUE}"
    facts = {
        "id": job.id,
        "name": job.name,
        "tenant": job.tenant,
        "action": job.action,
        "connection": connection.name,
        "queue": job.queue,
        "priority": job.priority,
        "delay": delay,
    }
    session.answer(facts, f"pushed {job.id} {job.name} for {job.tenant} on {where}")
