"""Storing, claiming and settling on the store in memory. The caller holds the lock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hesape.driver import PROMOTED_AT_ONCE, already_queued, already_stored
from hesape.drivers.memory.records import Beat, Entry, Lane, State, Stored
from hesape.drivers.memory.store import Store
from hesape.envelope import same_content
from hesape.records import Claim, Claimed, Key, NewRow, WorkerRow


def store_rows(store: Store, rows: Sequence[NewRow]) -> None:
    """Store rows in order, all or nothing (I1, I2, B1)."""
    now_us = store.clock()
    fresh: dict[str, NewRow] = {}
    keys: dict[str, Entry] = {}
    for index, row in enumerate(rows):
        if _is_stored(store, fresh, rows, index):
            continue
        if row.unique is not None:
            if row.unique.key in keys or store.entry(row.unique.key, now_us) is not None:
                raise already_queued(rows, index)
            keys[row.unique.key] = Entry(row.id, now_us + row.unique.ttl_us)
        fresh[row.id] = row
    store.entries.update(keys)
    for row in fresh.values():
        store.add(_new_job(store, row, now_us))
    if fresh:
        store.changed.notify_all()


def _is_stored(store: Store, fresh: dict[str, NewRow], rows: Sequence[NewRow], index: int) -> bool:
    row = rows[index]
    found = store.jobs.get(row.id) or fresh.get(row.id)
    if found is None:
        return False
    if found.tenant != row.tenant or not same_content(found.envelope, row.envelope):
        raise already_stored(rows, index)
    return True


def _new_job(store: Store, row: NewRow, now_us: int) -> Stored:
    due_us = now_us + row.delay_us if row.run_at_us is None else max(now_us, row.run_at_us)
    return Stored(
        row.id,
        row.envelope,
        row.tenant,
        row.name,
        row.queue,
        row.priority,
        due_us,
        store.next_sequence(),
        now_us,
        State.READY if due_us <= now_us else State.SCHEDULED,
    )


def reserve(store: Store, claim: Claim) -> Claimed:
    """Delete what is done, promote what is due, claim: one step under the lock (L6)."""
    lost = delete(store, claim.done, repeat=claim.repeat)
    now_us = store.clock()
    lanes = [store.lanes[queue] for queue in dict.fromkeys(claim.queues) if queue in store.lanes]
    again = store.held.get(claim.token)
    jobs = list(again.values()) if again else _claim_new(store, claim, lanes, now_us)
    dues = [
        place[0]
        for queue in claim.queues
        if queue not in store.paused and (lane := store.lanes.get(queue)) is not None
        if (place := lane.scheduled.first()) is not None
    ]
    paused = frozenset(store.paused)
    return Claimed([job.row() for job in jobs], lost, paused, now_us, min(dues, default=None))


def _claim_new(store: Store, claim: Claim, lanes: list[Lane], now_us: int) -> list[Stored]:
    while _promote(store, lanes, now_us) >= PROMOTED_AT_ONCE:
        pass
    claimed: list[Stored] = []
    for queue in dict.fromkeys(claim.queues):
        lane = store.lanes.get(queue)
        if lane is None or queue in store.paused:
            continue
        while len(claimed) < claim.n and (job_id := lane.ready.take()) is not None:
            job = store.jobs[job_id]
            store.reserve(job, claim.token, claim.worker, now_us, now_us + claim.lease_us)
            claimed.append(job)
    return claimed


def _promote(store: Store, lanes: list[Lane], now_us: int) -> int:
    """Make ready what fell due and whose lease ran out, up to `PROMOTED_AT_ONCE` of each; the greater number."""
    due = lapsed = 0
    for lane in lanes:
        for job_id in lane.scheduled.take_until(now_us, PROMOTED_AT_ONCE - due):
            store.ready(store.jobs[job_id])
            due += 1
        while lapsed < PROMOTED_AT_ONCE and (place := lane.reserved.first()) is not None and place[0] <= now_us:
            job_id = lane.reserved.take() or ""
            store.lapse(store.jobs[job_id])
            lapsed += 1
    return max(due, lapsed)


def delete(store: Store, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete the current deliveries and return the others; with `repeat` what is absent counts as deleted (S3, S5)."""
    now_us = store.clock()
    lost = []
    for key in keys:
        job = store.jobs.get(key.id)
        if job is not None and job.current(key.token, now_us):
            store.remove(job)
        elif job is not None or not repeat:
            lost.append(key)
    return lost


def release(store: Store, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int) -> bool:
    """Put a current delivery back, due after the delay; true for a repeat too (L4, S1)."""
    now_us = store.clock()
    job = store.jobs.get(key.id)
    if job is None:
        return False
    if not job.current(key.token, now_us):
        return job.token == key.token and job.state in {State.READY, State.SCHEDULED}
    job.attempts -= 0 if spent else 1
    job.lapses, job.last_error, job.exceptions = 0, error, exceptions
    store.put_back(job, now_us + delay_us, now_us)
    return True


def fail(store: Store, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a current delivery; true for a repeat too (L4, S1)."""
    now_us = store.clock()
    job = store.jobs.get(key.id)
    if job is None:
        return False
    if not job.current(key.token, now_us):
        return job.token == key.token and job.state is State.FAILED
    job.lapses, job.last_error, job.exceptions = 0, error, exceptions
    store.park(job, now_us)
    return True


def extend(store: Store, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """Move the deadlines of current deliveries forward, never back (L5)."""
    now_us = store.clock()
    deadlines: list[int | None] = []
    for job in _current(store, keys, now_us):
        if job is not None and lease_us > 0 and now_us + lease_us > (job.reserved_until_us or 0):
            store.extend(job, now_us + lease_us)
        deadlines.append(None if job is None else job.reserved_until_us)
    return deadlines


def hand_back(store: Store, keys: Sequence[Key]) -> None:
    """Make what never started ready again, its attempt and its place given back (L8)."""
    for job in _current(store, keys, store.clock()):
        if job is not None and job.state is State.RESERVED:
            job.attempts -= 1
            store.free(job)


def _current(store: Store, keys: Sequence[Key], now_us: int) -> Iterator[Stored | None]:
    for key in keys:
        job = store.jobs.get(key.id)
        yield job if job is not None and job.current(key.token, now_us) else None


def beat(store: Store, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
    """Renew a worker and the leases it holds that end soon; the paused queues (L9)."""
    now_us = store.clock()
    store.workers[worker] = Beat(now_us, now_us + ttl_us)
    spared = set(but)
    for job in _held_by(store, worker):
        until_us = job.reserved_until_us or 0
        if job.id not in spared and now_us < until_us < now_us + lease_us // 2:
            store.extend(job, now_us + lease_us)
    return frozenset(store.paused)


def retire(store: Store, worker: str) -> int:
    """Forget a worker and free what it holds; how many jobs."""
    store.workers.pop(worker, None)
    held = _held_by(store, worker)
    for job in held:
        store.lapse(job)
    return len(held)


def rescue(store: Store) -> int:
    """Retire the workers whose beats ran out, and forget what expired; how many jobs came back."""
    now_us = store.clock()
    for key in [key for key in store.entries if store.entry(key, now_us) is None]:
        del store.entries[key]
    dead = [worker for worker, last in store.workers.items() if last.end_us <= now_us]
    return sum(retire(store, worker) for worker in dead)


def workers(store: Store) -> list[WorkerRow]:
    """The registered workers by name, with how much they hold and since when."""
    rows = []
    for worker, last in sorted(store.workers.items()):
        since = [job.claimed_us for job in _held_by(store, worker) if job.claimed_us is not None]
        rows.append(WorkerRow(worker, last.beat_us, len(since), min(since, default=None)))
    return rows


def _held_by(store: Store, worker: str) -> list[Stored]:
    return [job for claim in store.held.values() for job in claim.values() if worker and job.worker == worker]
