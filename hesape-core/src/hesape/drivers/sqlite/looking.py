"""Looking at queues and at what failed, and repairing it (C, F)."""

from __future__ import annotations

from collections.abc import Sequence

from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.records import FAILED, STATES, to_blob, to_rows, to_text
from hesape.drivers.sqlite.session import Session
from hesape.errors import HesapeError, JobNotFoundError, NotFailedError
from hesape.records import Counts, Row


def counts(session: Session, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed, at this very moment."""
    ready, due, delayed, lapsed, reserved, parked = session.rows(sql.COUNTS, {"of": queue, "now": session.now()})[0]
    return Counts(ready + due + lapsed, delayed, reserved, parked)


def oldest_pending(session: Session, queue: str) -> int | None:
    """When the job that waits longest became due."""
    found: int | None = session.rows(sql.OLDEST, {"of": queue, "now": session.now()})[0][0]
    return found


def queues(session: Session) -> list[str]:
    """The queues that have a job or are paused."""
    return [queue for (queue,) in session.rows(sql.QUEUES)]


def next_pending(session: Session, queues: Sequence[str]) -> int | None:
    """When a claim may next find something, 0 for now; `None` for no time known (W1)."""
    paused = {queue for (queue,) in session.rows(sql.PAUSED)}
    moments: list[int] = []
    for queue in queues:
        if queue in paused:
            continue
        is_ready, due_us, end_us = session.rows(sql.LOOK, (queue, queue, queue))[0]
        if is_ready:
            return 0
        moments += [moment for moment in (due_us, end_us) if moment is not None]
    return min(moments, default=None)


def failed(
    session: Session, tenant: str | None, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """A page of failed jobs, newest first."""
    page = sql.failed_page(tenant=tenant is not None, queue=queue is not None, after=before is not None)
    values: list[object] = [value for value in (tenant, queue) if value is not None]
    if before is not None:
        values += [before[0], to_blob(before[1])]
    return to_rows(session.rows(page, (*values, limit)))


def find(session: Session, tenant: str | None, job_id: str) -> Row:
    """One failed job."""
    blob = to_blob(job_id)
    _check_failed(session, tenant, blob)
    return to_rows(session.rows(sql.FIND, {"id": blob, "tenant": tenant}))[0]


def _check_failed(session: Session, tenant: str | None, blob: bytes) -> None:
    found = session.rows(sql.STATE, {"id": blob, "tenant": tenant})
    if not found:
        whose = "" if tenant is None else f" for the tenant {tenant!r}"
        message = f"there is no failed job {to_text(blob)}{whose}"
        raise JobNotFoundError(message)
    if found[0][0] != FAILED:
        message = f"job {to_text(blob)} hasn't failed: it is {STATES[found[0][0]]}"
        raise NotFailedError(message)


def _all_failed(session: Session, tenant: str | None, ids: Sequence[str]) -> list[bytes]:
    """The ids, each once, all of failed jobs; else the error of the first that isn't, with its index."""
    session.begin()
    blobs = [to_blob(job_id) for job_id in ids]
    for index, blob in enumerate(blobs):
        try:
            _check_failed(session, tenant, blob)
        except HesapeError as error:
            error.index = index
            raise
    return list(dict.fromkeys(blobs))


def retry(session: Session, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back as they were pushed, due now, all or nothing (F2)."""
    blobs = _all_failed(session, tenant, ids)
    now_us = session.now()
    session.many(sql.RETRY, [{"now_us": now_us, "id": blob} for blob in blobs])


def forget(session: Session, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs, all or nothing (F4)."""
    return session.many(sql.FORGET, [(blob,) for blob in _all_failed(session, tenant, ids)])


def prune(session: Session, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all (F4)."""
    session.begin()
    if older_than_us is None:
        return session.run(sql.FLUSH)
    return session.run(sql.PRUNE, (session.now() - older_than_us,))


def clear(session: Session, queue: str) -> int:
    """Remove what is pending, delayed and reserved (C2)."""
    session.begin()
    return sum(session.run(statement, (queue,)) for statement in sql.CLEAR)
