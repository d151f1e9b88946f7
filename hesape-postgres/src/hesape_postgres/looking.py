"""Looking at the store, and repairing what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from hesape.errors import JobNotFoundError, NotFailedError
from hesape.records import Counts, Row
from hesape_postgres import records, statements
from hesape_postgres.connections import Own
from hesape_postgres.link import Link
from hesape_postgres.notify import Announcer, Woken

_FAILED: Final = 3
_STATES: Final = ("ready", "scheduled", "reserved", "failed")


def counts(link: Link, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed (C1)."""
    return Counts(*link.look(statements.COUNTS, {"queue": queue})[0])


def queues(link: Link) -> list[str]:
    """The queues that have a job or are paused."""
    return sorted(queue for (queue,) in link.look(statements.QUEUES))


def oldest_pending(link: Link, queue: str) -> int | None:
    """When the pending job that waits longest became due (C1)."""
    found: int | None = link.look(statements.OLDEST, {"queue": queue})[0][0]
    return found


def failed(
    link: Link, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """Failed jobs, newest first, after a cursor (F1)."""
    statement = statements.FAILED
    # Put together from fixed parts: a condition that may be absent would keep the plan from its index
    statement += statements.OF_TENANT if tenant is not None else ""
    statement += statements.OF_QUEUE if queue is not None else ""
    statement += statements.BEFORE if before is not None else ""
    failed_us, job_id = before or (0, "")
    params = {"tenant": tenant, "queue": queue, "failed_us": failed_us, "id": job_id, "limit": limit}
    return [link.text.row(values) for values in link.look(statement + statements.NEWEST_FIRST, params)]


def find(link: Link, tenant: str | None, job_id: str) -> Row:
    """One failed job; another tenant's isn't found (F3, G7)."""
    found = link.look(statements.FIND, {"id": job_id})
    if not found:
        _not_found(tenant, job_id)
    state, *values = found[0]
    row = link.text.row(values)
    _check(tenant, job_id, row.tenant, state)
    return row


def retry(link: Link, announcer: Announcer, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back as they were pushed, due now, all or nothing (F2)."""
    if not ids:
        return
    with link.transaction() as own:
        _hold(link, own, tenant, ids)
        found = own.rows(link.sql[statements.RETRY], {"ids": records.array(ids)})
    announcer.committed([Woken(queue) for (queue,) in found])


def forget(link: Link, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs, all or nothing; how many (F4)."""
    if not ids:
        return 0
    with link.transaction() as own:
        _hold(link, own, tenant, ids)
        return own.count(link.sql[statements.FORGET], {"ids": records.array(ids)})


def prune(link: Link, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all; how many (F4)."""
    if older_than_us is None:
        return link.unhurried(lambda own: own.count(link.sql[statements.FLUSH]))
    return link.unhurried(lambda own: own.count(link.sql[statements.PRUNE], {"older": older_than_us}))


def clear(link: Link, queue: str) -> int:
    """Remove what is pending, delayed and reserved; how many (C2)."""
    return link.unhurried(lambda own: own.count(link.sql[statements.CLEAR], {"queue": queue}))


def pause(link: Link, queue: str) -> None:
    """Let no claim take from a queue (L9)."""
    link.count(statements.PAUSE, {"queue": queue})


def resume(link: Link, announcer: Announcer, queue: str) -> None:
    """Let claims take from a queue again."""
    with link.own() as own:
        own.count(link.sql[statements.RESUME], {"queue": queue})
        announcer.after(own, [Woken(queue)])


def _hold(link: Link, own: Own, tenant: str | None, ids: Sequence[str]) -> None:
    """Lock failed jobs till the end of the transaction; the first that isn't one raises, with its index."""
    found = {job_id: rest for job_id, *rest in own.rows(link.sql[statements.HOLD], {"ids": records.array(ids)})}
    for index, job_id in enumerate(ids):
        try:
            if job_id not in found:
                _not_found(tenant, job_id)
            _check(tenant, job_id, *found[job_id])
        except (JobNotFoundError, NotFailedError) as error:
            error.index = index
            raise


def _check(tenant: str | None, job_id: str, owner: str, state: int) -> None:
    if tenant not in {None, owner}:
        _not_found(tenant, job_id)
    if state != _FAILED:
        message = f"job {job_id} hasn't failed: it is {_STATES[state]}"
        raise NotFailedError(message)


def _not_found(tenant: str | None, job_id: str) -> NoReturn:
    message = f"there is no failed job {job_id}" + ("" if tenant is None else f" for the tenant {tenant!r}")
    raise JobNotFoundError(message)
