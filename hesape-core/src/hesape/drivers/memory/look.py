"""Looking at the store in memory, and repairing what failed. The caller holds the lock."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hesape.drivers.memory.records import Lane, State, Stored
from hesape.drivers.memory.store import Store
from hesape.errors import HesapeError, JobNotFoundError, NotFailedError
from hesape.records import Counts, Row


def counts(store: Store, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed, at this very moment (C1)."""
    lane, now_us = store.lanes.get(queue, Lane()), store.clock()
    due = sum(place[0] <= now_us for place in lane.scheduled.places())
    lapsed = sum(place[0] <= now_us for place in lane.reserved.places())
    delayed, reserved = len(lane.scheduled) - due, len(lane.reserved) - lapsed
    waiting = len(lane.ready) + due + lapsed
    return Counts(waiting, delayed, reserved, len(lane.jobs) - waiting - delayed - reserved)


def oldest_pending(store: Store, queue: str) -> int | None:
    """When the job that waits longest became due (C1)."""
    lane, now_us = store.lanes.get(queue, Lane()), store.clock()
    return min((job.due_us for job in lane.jobs.values() if _pending(job, now_us)), default=None)


def _pending(job: Stored, now_us: int) -> bool:
    if job.state is State.RESERVED:
        return (job.reserved_until_us or 0) <= now_us
    return job.state is State.READY or (job.state is State.SCHEDULED and job.due_us <= now_us)


def queues(store: Store) -> list[str]:
    """The queues that have a job or are paused."""
    return sorted(store.lanes.keys() | store.paused)


def next_pending(store: Store, queues: Sequence[str]) -> int | None:
    """When a claim from these queues may next find something, 0 for now, `None` for no time known (W1)."""
    moments: list[int] = []
    for queue in queues:
        lane = store.lanes.get(queue)
        if lane is None or queue in store.paused:
            continue
        if len(lane.ready):
            return 0
        moments += [place[0] for line in (lane.scheduled, lane.reserved) if (place := line.first()) is not None]
    return min(moments, default=None)


def failed(
    store: Store, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """Failed jobs, newest first, after a cursor (F1)."""
    found = (
        job
        for job in store.jobs.values()
        if job.state is State.FAILED
        and tenant in {None, job.tenant}
        and queue in {None, job.queue}
        and (before is None or _newness(job) < before)
    )
    return [job.row() for job in heapq.nlargest(limit, found, key=_newness)]


def _newness(job: Stored) -> tuple[int, str]:
    return (job.failed_us or 0, job.id)


def find(store: Store, tenant: str | None, job_id: str) -> Stored:
    """One failed job; another tenant's isn't found (F3, G7)."""
    job = store.jobs.get(job_id)
    if job is None or tenant not in {None, job.tenant}:
        message = f"there is no failed job {job_id}" + ("" if tenant is None else f" for the tenant {tenant!r}")
        raise JobNotFoundError(message)
    if job.state is not State.FAILED:
        message = f"job {job_id} hasn't failed: it is {job.state.value}"
        raise NotFailedError(message)
    return job


def _find_all(store: Store, tenant: str | None, ids: Sequence[str]) -> list[Stored]:
    found: dict[str, Stored] = {}
    for index, job_id in enumerate(ids):
        try:
            found[job_id] = find(store, tenant, job_id)
        except HesapeError as error:
            error.index = index
            raise
    return list(found.values())


def retry(store: Store, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back as they were pushed, due now, all or nothing (F2)."""
    now_us = store.clock()
    for job in _find_all(store, tenant, ids):
        job.attempts = job.exceptions = job.lapses = 0
        job.last_error = job.token = job.failed_us = None
        job.retried_us = now_us
        store.put_back(job, now_us, now_us)


def forget(store: Store, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs, all or nothing (F4)."""
    return _remove(store, _find_all(store, tenant, ids))


def prune(store: Store, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all (F4)."""
    end_us = None if older_than_us is None else store.clock() - older_than_us
    old = [
        job
        for job in store.jobs.values()
        if job.state is State.FAILED and (end_us is None or (job.failed_us or 0) < end_us)
    ]
    return _remove(store, old)


def clear(store: Store, queue: str) -> int:
    """Remove what is pending, delayed and reserved (C2)."""
    lane = store.lanes.get(queue, Lane())
    return _remove(store, [job for job in lane.jobs.values() if job.state is not State.FAILED])


def _remove(store: Store, jobs: list[Stored]) -> int:
    for job in jobs:
        store.remove(job)
    return len(jobs)
