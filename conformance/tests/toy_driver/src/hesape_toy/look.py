"""Looking, repairing what failed, and coordination. The caller has the store to itself."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hesape.errors import HesapeError, JobNotFoundError, NotFailedError
from hesape.records import Counts, Row
from hesape_toy.tables import Entry, Kept, State, Tables


def counts(tables: Tables, now_us: int, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed at this very moment (C1)."""
    pending = delayed = reserved = failures = 0
    for job in tables.jobs.values():
        if job.queue == queue:
            pending += _pending(job, now_us)
            delayed += job.state is State.SCHEDULED and job.due_us > now_us
            reserved += job.state is State.RESERVED and job.until_us > now_us
            failures += job.state is State.FAILED
    return Counts(pending, delayed, reserved, failures)


def _pending(job: Kept, now_us: int) -> bool:
    """Whether it could be claimed: a job that fell due, or whose lease ran out, is kept as it was until a claim."""
    if job.state is State.RESERVED:
        return job.until_us <= now_us
    return job.state is not State.FAILED and job.due_us <= now_us


def oldest_pending(tables: Tables, now_us: int, queue: str) -> int | None:
    """When the job that waits longest became due (C1)."""
    jobs = tables.jobs.values()
    return min((job.due_us for job in jobs if job.queue == queue and _pending(job, now_us)), default=None)


def queues(tables: Tables) -> list[str]:
    """The queues that have a job or are paused."""
    return sorted({job.queue for job in tables.jobs.values()} | tables.paused)


def failed(
    tables: Tables, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """Failed jobs, newest first, after a cursor (F1)."""
    found = (
        job
        for job in tables.jobs.values()
        if job.state is State.FAILED
        and tenant in {None, job.tenant}
        and queue in {None, job.queue}
        and (before is None or _newness(job) < before)
    )
    return [job.row() for job in heapq.nlargest(limit, found, key=_newness)]


def _newness(job: Kept) -> tuple[int, str]:
    return (job.failed_us or 0, job.id)


def find(tables: Tables, tenant: str | None, job_id: str) -> Kept:
    """One failed job; another tenant's isn't found (F3, G7)."""
    job = tables.jobs.get(job_id)
    if job is None or tenant not in {None, job.tenant}:
        raise JobNotFoundError(f"there is no failed job {job_id}" + (f" for the tenant {tenant!r}" if tenant else ""))
    if job.state is not State.FAILED:
        raise NotFailedError(f"job {job_id} hasn't failed: it is {job.state}")
    return job


def _find_all(tables: Tables, tenant: str | None, ids: Sequence[str]) -> list[Kept]:
    found: dict[str, Kept] = {}
    for index, job_id in enumerate(ids):
        try:
            found[job_id] = find(tables, tenant, job_id)
        except HesapeError as error:
            error.index = index
            raise
    return list(found.values())


def retry(tables: Tables, now_us: int, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back as they were pushed, due now (F2)."""
    for job in _find_all(tables, tenant, ids):
        tables.keep(
            job._replace(
                state=State.READY,
                due_us=now_us,
                place=tables.next_place(),
                attempts=0,
                lapses=0,
                exceptions=0,
                last_error=None,
                token=None,
                retried_us=now_us,
                failed_us=None,
            )
        )


def forget(tables: Tables, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs (F4)."""
    return _drop(tables, _find_all(tables, tenant, ids))


def prune(tables: Tables, now_us: int, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all (F4)."""
    end_us = None if older_than_us is None else now_us - older_than_us
    failures = [job for job in tables.jobs.values() if job.state is State.FAILED]
    return _drop(tables, [job for job in failures if end_us is None or (job.failed_us or 0) < end_us])


def clear(tables: Tables, queue: str) -> int:
    """Remove all of a queue but what failed (C2)."""
    return _drop(tables, [job for job in tables.jobs.values() if job.queue == queue and job.state is not State.FAILED])


def _drop(tables: Tables, jobs: list[Kept]) -> int:
    for job in jobs:
        tables.drop(job)
    return len(jobs)


def lock(tables: Tables, now_us: int, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own (K1)."""
    held = tables.entry(key, now_us)
    if held is not None and held.value != owner:
        return False
    tables.set_entry(key, Entry(owner, now_us + ttl_us))
    return True


def unlock(tables: Tables, now_us: int, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    held = tables.entry(key, now_us)
    if held is None or held.value != owner:
        return False
    tables.set_entry(key, None)
    return True


def increment(tables: Tables, now_us: int, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; 0 looks."""
    held = tables.entry(key, now_us)
    value = by + (0 if held is None else int(held.value))
    end_us = now_us + ttl_us if held is None or held.end_us is None else held.end_us
    if by:
        tables.set_entry(key, Entry(str(value), end_us))
    return value, end_us
