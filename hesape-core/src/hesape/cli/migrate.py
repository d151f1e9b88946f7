"""`hesape migrate`: the store's tables, step by numbered step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hesape import retry
from hesape.cli import output
from hesape.cli.session import Session, command

if TYPE_CHECKING:
    from hesape.driver import Driver
    from hesape.records import Migration


@click.command()
@click.option("--plan", is_flag=True, help="Show the missing steps, change nothing.")
@click.option("--sql", is_flag=True, help="Print the statements of the missing steps, change nothing.")
@click.option("--since", type=click.IntRange(0), help="With --plan or --sql: the steps after this one, without asking.")
@command
def migrate(session: Session, since: int | None, *, plan: bool, sql: bool) -> None:
    """Apply the steps that the store's tables lack. Run twice it does nothing twice."""
    if since is not None and not plan and not sql:
        message = "--since goes with --plan or --sql"
        raise click.UsageError(message, click.get_current_context())
    queue = session.queue()
    if plan or sql:
        _print(session, _missing(queue.driver, since), sql=sql)
        return
    known = {step.number: step.title for step in queue.driver.migrations()}
    applied = retry.insist(lambda _: queue.driver.migrate())
    version = retry.insist(lambda _: queue.driver.schema_version())
    steps = [{"number": number, "title": known.get(number, "")} for number in applied]
    lines = [f"applied {step['number']}: {step['title']}" for step in steps]
    session.answer(
        {"connection": queue.name, "version": version, "applied": steps},
        "\n".join([*lines, f"{queue.name} is at version {version}"]),
    )


def _missing(driver: Driver, since: int | None) -> list[Migration]:
    version = retry.insist(lambda _: driver.schema_version()) if since is None else since
    return [step for step in driver.migrations() if step.number > version]


def _print(session: Session, steps: list[Migration], *, sql: bool) -> None:
    if session.json:
        output.document({"missing": [{"number": s.number, "title": s.title, "sql": s.sql} for s in steps]})
    elif sql:
        for step in steps:
            click.echo(f"-- {step.number}: {step.title}\n{step.sql.strip()}\n")
    else:
        output.table(("step", "title"), [(step.number, step.title) for step in steps], empty="nothing is missing")
