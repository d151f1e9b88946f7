"""`hesape failed`: the failed jobs of every tenant, as an operator sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hesape.cli import output, suggest
from hesape.cli.session import Duration, Session, command, force_option

if TYPE_CHECKING:
    from hesape.operator import Operator

_PAGE = 500


@click.group()
def failed() -> None:
    """List, show, retry and remove failed jobs, of every tenant."""


@failed.command("list")
@click.option("--queue", shell_complete=suggest.queues, help="Of this queue alone.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=50, show_default=True)
@click.option("--before", metavar="CURSOR", help="Go on after a page that ended with this cursor.")
@command
def list_(session: Session, queue: str | None, limit: int, before: str | None) -> None:
    """List failed jobs, newest first."""
    found = session.queue().operator().failed(queue=queue, limit=limit, before=before)
    following = found[-1].cursor if len(found) == limit else None
    if session.json:
        output.document({"jobs": [output.failed_job(job) for job in found], "next": following})
        return
    rows = [
        (job.id, job.name, job.queue, job.tenant, job.attempts, output.moment(job.failed_at), _reason(job.last_error))
        for job in found
    ]
    output.table(("id", "name", "queue", "tenant", "attempts", "failed (UTC)", "error"), rows, empty="no failed jobs")
    if following:
        click.echo(f"more: --before {following}")


@failed.command()
@click.argument("job_id", metavar="ID")
@command
def show(session: Session, job_id: str) -> None:
    """Show one failed job, its payload and its error."""
    facts = output.failed_job(session.queue().operator().find(job_id))
    if session.json:
        output.document(facts)
        return
    error = facts.pop("last_error") or "no error was recorded"
    output.pairs({name: value for name, value in facts.items() if value != ""})
    click.echo(f"\n{output.printable(error)}")


@failed.command()
@click.argument("job_ids", metavar="ID...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Retry every failed job that can be read.")
@click.option("--queue", shell_complete=suggest.queues, help="With --all: of this queue alone.")
@command
def retry(session: Session, job_ids: tuple[str, ...], queue: str | None, *, everything: bool) -> None:
    """Put failed jobs back, due now, as they were pushed. Ids are all or nothing."""
    if bool(job_ids) == everything:
        message = "name the ids to retry, or --all"
        raise click.UsageError(message, click.get_current_context())
    operator = session.queue().operator()
    if everything:
        count = _retry_all(operator, queue)
    else:
        operator.retry(job_ids)
        count = len(set(job_ids))
    session.answer({"retried": count}, f"retried {count} jobs")


@failed.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@force_option
@command
def forget(session: Session, job_ids: tuple[str, ...], *, force: bool) -> None:
    """Remove failed jobs, all or none."""
    operator = session.queue().operator()
    session.confirm(f"Remove {len(set(job_ids))} failed jobs for good?", force=force)
    removed = operator.forget(job_ids)
    session.answer({"removed": removed}, f"removed {removed} failed jobs")


@failed.command()
@force_option
@command
def flush(session: Session, *, force: bool) -> None:
    """Remove every failed job of the connection."""
    queue = session.queue()
    count = sum(queue.counts(name).failed for name in queue.queues())
    session.confirm(f"Remove all {count} failed jobs of every tenant on {queue.name} for good?", force=force)
    removed = queue.operator().flush()
    session.answer({"removed": removed}, f"removed {removed} failed jobs")


@failed.command()
@click.option("--older-than", type=Duration(), required=True, help="Such as 30d: when it failed, by the store's clock.")
@force_option
@command
def prune(session: Session, older_than: float, *, force: bool) -> None:
    """Remove the jobs that failed longer ago than that."""
    queue = session.queue()
    session.confirm(
        f"Remove the jobs of every tenant on {queue.name} that failed over {older_than:g} s ago for good?", force=force
    )
    removed = queue.operator().prune(older_than)
    session.answer({"removed": removed}, f"removed {removed} failed jobs")


def _retry_all(operator: Operator, queue: str | None) -> int:
    """Page by page; what can't be read stays, since it can't be retried (G7)."""
    count, before = 0, None
    while page := operator.failed(queue=queue, limit=_PAGE, before=before):
        ids = [job.id for job in page if not job.problem]
        if ids:
            operator.retry(ids)
        count += len(ids)
        before = page[-1]
    return count


def _reason(error: str | None) -> str:
    return (error or "").partition("\n")[0][:100]
