"""`hesape migrate`: the store's tables, step by numbered step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hesape import retry
from hesape.cli import output
from hesape.cli.session import Session, command
from hesape.errors import HesapeError

if TYPE_CHECKING:
    from hesape.driver import Driver
    from hesape.queue import Queue


@click.command()
@click.option("--plan", is_flag=True, help="Show the missing steps, change nothing.")
@click.option("--sql", is_flag=True, help="Print the statements of the missing steps, change nothing.")
@click.option("--since", type=click.IntRange(0), help="With --plan or --sql: the steps after this one, without asking.")
@command
def migrate(session: Session, since: int | None, *, plan: bool, sql: bool) -> int:
    """Apply the steps that the store's tables lack. Run twice it does nothing twice.

    Of a failover connection each store is migrated, whatever becomes of the others.
    """
    if since is not None and not plan and not sql:
        message = "--since goes with --plan or --sql"
        raise click.UsageError(message, click.get_current_context())
    queue = session.queue()
    stores = session.stores(queue)
    if stores == [queue]:
        found = _missing(queue.driver, since) if plan or sql else _applied(queue)
        _answer(session, found, sql=sql)
        return 0
    members: list[dict[str, Any]] = []
    for store in stores:
        about = {"connection": store.name, "driver": store.driver.spec.name}
        try:
            found = _missing(store.driver, since) if plan or sql else _applied(store)
        except HesapeError as error:
            members.append({**about, "problem": {"code": error.code, "message": str(error)}})
        else:
            members.append({**about, **found})
    if session.json:
        output.document({"connection": queue.name, "members": members})
    else:
        for member in members:
            _show_member(session, member, sql=sql)
    return int(any("problem" in member for member in members))


def _applied(queue: Queue) -> dict[str, Any]:
    known = {step.number: step.title for step in queue.driver.migrations()}
    applied = retry.insist(lambda _: queue.driver.migrate())
    version = retry.insist(lambda _: queue.driver.schema_version())
    steps = [{"number": number, "title": known.get(number, "")} for number in applied]
    return {"connection": queue.name, "version": version, "applied": steps}


def _missing(driver: Driver, since: int | None) -> dict[str, Any]:
    version = retry.insist(lambda _: driver.schema_version()) if since is None else since
    return {"missing": [step._asdict() for step in driver.migrations() if step.number > version]}


def _show_member(session: Session, member: dict[str, Any], *, sql: bool) -> None:
    """One store behind a failover connection, by its name."""
    if "applied" not in member:
        click.echo(f"-- connection {member['connection']} ({member['driver']})")
    if "problem" in member:
        problem = member["problem"]
        text = f"error[{problem['code']}]: connection {member['connection']}: {problem['message']}"
        click.echo(output.printable(text), err=True)
    else:
        _answer(session, member, sql=sql)


def _answer(session: Session, found: dict[str, Any], *, sql: bool) -> None:
    if session.json:
        output.document(found)
    elif "applied" in found:
        for step in found["applied"]:
            click.echo(f"applied {step['number']}: {step['title']}")
        click.echo(f"{found['connection']} is at version {found['version']}")
    elif sql:
        for step in found["missing"]:
            click.echo(f"-- {step['number']}: {step['title']}\n{step['sql'].strip()}\n")
    else:
        rows = [(step["number"], step["title"]) for step in found["missing"]]
        output.table(("step", "title"), rows, empty="nothing is missing")
