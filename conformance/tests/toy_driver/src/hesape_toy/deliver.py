"""Storing, claiming, settling, and the workers that do so. The caller has the store to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hesape.driver import already_queued, already_stored
from hesape.envelope import same_content
from hesape.records import Claim, Claimed, Key, NewRow, WorkerRow
from hesape_toy.tables import Beat, Entry, Kept, State, Tables

_UNRESERVED: Final[dict[str, Any]] = {"worker": "", "claimed_us": 0, "until_us": 0}


def store(tables: Tables, now_us: int, rows: Sequence[NewRow]) -> None:
    """Store rows in order (I1, I2). What was changed before an error is forgotten with it (B1)."""
    for index, row in enumerate(rows):
        found = tables.jobs.get(row.id)
        if found is not None:
            if found.tenant != row.tenant or not same_content(found.envelope.encode("latin-1"), row.envelope):
                raise already_stored(rows, index)
            continue
        if row.unique is not None:
            if tables.entry(row.unique.key, now_us) is not None:
                raise already_queued(rows, index)
            tables.set_entry(row.unique.key, Entry(row.id, now_us + row.unique.ttl_us))
        due_us = now_us + row.delay_us if row.run_at_us is None else max(now_us, row.run_at_us)
        tables.keep(
            Kept(
                id=row.id,
                envelope=row.envelope.decode("latin-1"),
                tenant=row.tenant,
                name=row.name,
                queue=row.queue,
                priority=row.priority,
                due_us=due_us,
                place=tables.next_place(),
                pushed_us=now_us,
                state=_waiting(due_us, now_us),
            )
        )


def _waiting(due_us: int, now_us: int) -> State:
    return State.READY if due_us <= now_us else State.SCHEDULED


def reserve(tables: Tables, now_us: int, claim: Claim) -> Claimed:
    """Delete what is done, promote what is due, claim."""
    lost = delete(tables, now_us, claim.done, repeat=claim.repeat)
    queues = list(dict.fromkeys(claim.queues))
    again = tables.held.get(claim.token.hex())
    claimed = [tables.jobs[job_id] for job_id in again] if again else _claim(tables, now_us, claim, queues)
    scheduled = [tables.first(queue, State.SCHEDULED) for queue in queues if queue not in tables.paused]
    next_due_us = min((job.due_us for job in scheduled if job is not None), default=None)
    return Claimed([job.row() for job in claimed], lost, frozenset(tables.paused), now_us, next_due_us)


def _claim(tables: Tables, now_us: int, claim: Claim, queues: list[str]) -> list[Kept]:
    for queue in queues:
        promote(tables, now_us, queue)
    claimed: list[Kept] = []
    for queue in queues:
        while queue not in tables.paused and len(claimed) < claim.n:
            job = tables.first(queue, State.READY)
            if job is None:
                break
            job = job._replace(
                state=State.RESERVED,
                attempts=job.attempts + 1,
                token=claim.token.hex(),
                worker=claim.worker,
                claimed_us=now_us,
                until_us=now_us + claim.lease_us,
            )
            tables.keep(job)
            claimed.append(job)
    return claimed


def promote(tables: Tables, now_us: int, queue: str) -> None:
    """Make ready all that fell due and whose lease ran out: nobody else is in the way (L3, O1)."""
    while (job := tables.first(queue, State.SCHEDULED)) is not None and job.due_us <= now_us:
        tables.keep(job._replace(state=State.READY))
    while (job := tables.first(queue, State.RESERVED)) is not None and job.until_us <= now_us:
        _lapse(tables, job)


def _lapse(tables: Tables, job: Kept) -> None:
    tables.keep(job._replace(state=State.READY, lapses=job.lapses + 1, token=None, **_UNRESERVED))


def _current(tables: Tables, now_us: int, key: Key) -> Kept | None:
    """The job that a delivery may still settle (L4)."""
    job = tables.jobs.get(key.id)
    if job is None or job.state is not State.RESERVED or job.token != key.token.hex() or job.until_us <= now_us:
        return None
    return job


def delete(tables: Tables, now_us: int, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete the current deliveries and return the others; with `repeat` what is absent was deleted (S3, S5)."""
    lost = []
    for key in keys:
        job = _current(tables, now_us, key)
        if job is not None:
            tables.drop(job)
        elif key.id in tables.jobs or not repeat:
            lost.append(key)
    return lost


def release(
    tables: Tables, now_us: int, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int
) -> bool:
    """Put a current delivery back behind its equals; its token stays, so that a repeat is known (S1, L4)."""
    job = _current(tables, now_us, key)
    if job is None:
        return _ended_so(tables, key, State.READY, State.SCHEDULED)
    due_us = now_us + delay_us
    tables.keep(
        job._replace(
            state=_waiting(due_us, now_us),
            due_us=due_us,
            place=tables.next_place(),
            attempts=job.attempts - (not spent),
            lapses=0,
            last_error=error,
            exceptions=exceptions,
            **_UNRESERVED,
        )
    )
    return True


def fail(tables: Tables, now_us: int, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a current delivery; its token stays, so that a repeat is known (S1, L4)."""
    job = _current(tables, now_us, key)
    if job is None:
        return _ended_so(tables, key, State.FAILED)
    tables.keep(
        job._replace(
            state=State.FAILED, failed_us=now_us, lapses=0, last_error=error, exceptions=exceptions, **_UNRESERVED
        )
    )
    return True


def _ended_so(tables: Tables, key: Key, *states: State) -> bool:
    job = tables.jobs.get(key.id)
    return job is not None and job.token == key.token.hex() and job.state in states


def extend(tables: Tables, now_us: int, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """Move deadlines forward, never back (L5)."""
    deadlines: list[int | None] = []
    for key in keys:
        job = _current(tables, now_us, key)
        if job is not None and lease_us > 0 and now_us + lease_us > job.until_us:
            job = job._replace(until_us=now_us + lease_us)
            tables.keep(job)
        deadlines.append(None if job is None else job.until_us)
    return deadlines


def hand_back(tables: Tables, now_us: int, keys: Sequence[Key]) -> None:
    """Make what never started ready again, its attempt and its place given back (L8)."""
    for key in keys:
        job = _current(tables, now_us, key)
        if job is not None:
            tables.keep(job._replace(state=State.READY, attempts=job.attempts - 1, token=None, **_UNRESERVED))


def beat(tables: Tables, now_us: int, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
    """Renew a worker and those of its leases that end soon."""
    tables.set_worker(worker, Beat(now_us, now_us + ttl_us))
    for job in _held_by(tables, worker):
        if job.id not in but and now_us < job.until_us < now_us + lease_us // 2:
            tables.keep(job._replace(until_us=now_us + lease_us))
    return frozenset(tables.paused)


def retire(tables: Tables, worker: str) -> int:
    """Forget a worker and free what it holds."""
    if worker in tables.workers:
        tables.set_worker(worker, None)
    held = _held_by(tables, worker)
    for job in held:
        _lapse(tables, job)
    return len(held)


def rescue(tables: Tables, now_us: int) -> int:
    """Retire the workers that fell silent, and forget what outlived its time (F4)."""
    for key in [key for key in tables.entries if tables.entry(key, now_us) is None]:
        tables.set_entry(key, None)
    silent = [worker for worker, last in tables.workers.items() if last.end_us <= now_us]
    return sum(retire(tables, worker) for worker in silent)


def workers(tables: Tables) -> list[WorkerRow]:
    """The registered workers by name, with how much they hold and since when."""
    rows = []
    for worker, last in sorted(tables.workers.items()):
        since = [job.claimed_us for job in _held_by(tables, worker)]
        rows.append(WorkerRow(worker, last.beat_us, len(since), min(since, default=None)))
    return rows


def _held_by(tables: Tables, worker: str) -> list[Kept]:
    """What a worker holds; a delivery without one is nobody's (L4)."""
    held = [tables.jobs[job_id] for claim in tables.held.values() for job_id in claim]
    return [job for job in held if worker and job.worker == worker]
