"""What the journal holds, in memory: jobs, what is kept beside them, and the lines in which jobs wait."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from hesape.records import Row

V = TypeVar("V")


class State(StrEnum):
    """Where a job is."""

    READY = "ready"
    SCHEDULED = "scheduled"
    RESERVED = "reserved"
    FAILED = "failed"


class Kept(NamedTuple):
    """One job. It is replaced, never changed, so that what memory and journal say can't drift apart."""

    id: str
    envelope: str
    """The bytes, each as the character of its number: JSON has no bytes, and this loses none (P3)."""
    tenant: str
    name: str
    queue: str
    priority: int
    due_us: int
    place: int
    """Among jobs of equal priority and due time: the order of pushing, then of putting back (O1)."""
    pushed_us: int
    state: State
    attempts: int = 0
    lapses: int = 0
    exceptions: int = 0
    last_error: str | None = None
    token: str | None = None
    """In hexadecimal. `None`, which no token equals, once the delivery is over for good."""
    worker: str = ""
    claimed_us: int = 0
    until_us: int = 0
    retried_us: int | None = None
    failed_us: int | None = None

    def row(self) -> Row:
        """What the contract calls a row."""
        return Row(
            self.id,
            self.envelope.encode("latin-1"),
            self.tenant,
            self.name,
            self.queue,
            self.priority,
            self.due_us,
            self.attempts,
            self.lapses,
            self.exceptions,
            self.last_error,
            self.until_us or None,
            self.pushed_us,
            self.retried_us,
            self.failed_us,
        )

    def standing(self) -> tuple[int, ...]:
        """Where it stands in the line of its queue and state."""
        if self.state is State.READY:
            return (self.priority, self.due_us, self.place)
        return (self.until_us if self.state is State.RESERVED else self.due_us, self.place)


class Entry(NamedTuple):
    """A lock's owner, a counter's value, a flag or the holder of a unique key, and when it ends; `None`: never."""

    value: str
    end_us: int | None


class Beat(NamedTuple):
    """A registered worker: when it was last heard of, and until when that counts."""

    beat_us: int
    end_us: int


class Tables:
    """Everything that the journal's lines add up to, and what was changed since the last line."""

    def __init__(self) -> None:
        """Begin empty."""
        self.jobs: dict[str, Kept] = {}
        self.entries: dict[str, Entry] = {}
        self.workers: dict[str, Beat] = {}
        self.paused: set[str] = set()
        self.quota: int | None = None
        self.held: dict[str, dict[str, None]] = {}
        """The ids of the reserved jobs of each claim, by its token, in the order they were claimed (L4)."""
        self.changes: dict[str, dict[str, Any]] = {}
        self._lines: dict[tuple[str, State], list[tuple[tuple[int, ...], str]]] = {}
        self._last_place = 0

    # Change.

    def keep(self, job: Kept) -> None:
        """Add a job, or replace what is kept of it."""
        self._note("jobs", job.id, job._asdict())
        self._put(job)

    def drop(self, job: Kept) -> None:
        """Forget a job."""
        self._note("jobs", job.id, None)
        self._take_out(job.id)

    def set_entry(self, key: str, entry: Entry | None) -> None:
        """Set or remove a lock, a counter, a flag or a unique key."""
        self._note("entries", key, entry)
        _set(self.entries, key, entry)

    def set_worker(self, worker: str, beat: Beat | None) -> None:
        """Register a worker, or forget it."""
        self._note("workers", worker, beat)
        _set(self.workers, worker, beat)

    def set_paused(self, queue: str, paused: bool) -> None:  # noqa: FBT001 - it is the value
        """Pause or resume a queue."""
        self._note("paused", queue, True if paused else None)
        (self.paused.add if paused else self.paused.discard)(queue)

    def _note(self, table: str, key: str, value: object) -> None:
        changed = self.changes.setdefault(table, {})
        changed.pop(key, None)  # the order of the last changes is the order in which jobs were claimed
        changed[key] = value

    def apply(self, line: Mapping[str, Any]) -> None:
        """Do what a line of the journal says."""
        for job_id, fields in line.get("jobs", {}).items():
            if fields is None:
                self._take_out(job_id)
            else:
                self._put(Kept(**{**fields, "state": State(fields["state"])}))
        for key, value in line.get("entries", {}).items():
            _set(self.entries, key, None if value is None else Entry(*value))
        for worker, value in line.get("workers", {}).items():
            _set(self.workers, worker, None if value is None else Beat(*value))
        for queue, value in line.get("paused", {}).items():
            (self.paused.discard if value is None else self.paused.add)(queue)
        if "quota" in line:
            self.quota = line["quota"]

    # Look.

    def next_place(self) -> int:
        """A place behind all others."""
        return self._last_place + 1

    def first(self, queue: str, state: State) -> Kept | None:
        """Whoever stands first among a queue's jobs of a state; those that left the line are dropped on the way."""
        line = self._lines.get((queue, state))
        while line:
            standing, job_id = line[0]
            job = self.jobs.get(job_id)
            if job is not None and (job.queue, job.state) == (queue, state) and job.standing() == standing:
                return job
            heapq.heappop(line)
        self._lines.pop((queue, state), None)
        return None

    def entry(self, key: str, now_us: int) -> Entry | None:
        """What is kept under a key and isn't over (K1)."""
        found = self.entries.get(key)
        return None if found is None or (found.end_us is not None and found.end_us <= now_us) else found

    def snapshot(self) -> list[dict[str, Any]]:
        """Lines that add up to the same, the jobs of each claim in their order."""
        held = [job_id for claim in self.held.values() for job_id in claim]
        order = [*(self.jobs.keys() - set(held)), *held]
        jobs: list[dict[str, Any]] = [{"jobs": {job_id: self.jobs[job_id]._asdict()}} for job_id in order]
        paused = dict.fromkeys(sorted(self.paused), True)
        rest = {"entries": self.entries, "workers": self.workers, "paused": paused, "quota": self.quota}
        return [*jobs, rest]

    def _put(self, job: Kept) -> None:
        before = self.jobs.get(job.id)
        self.jobs[job.id] = job
        self._last_place = max(self._last_place, job.place)
        if before is not None:
            self._left(before)
        if job.state is State.RESERVED and job.token is not None:
            self.held.setdefault(job.token, {})[job.id] = None
        if job.state is not State.FAILED:
            line = self._lines.setdefault((job.queue, job.state), [])
            heapq.heappush(line, (job.standing(), job.id))

    def _take_out(self, job_id: str) -> None:
        job = self.jobs.pop(job_id, None)
        if job is not None:
            self._left(job)

    def _left(self, before: Kept) -> None:
        now = self.jobs.get(before.id)
        if before.token in self.held and (now is None or (now.token, now.state) != (before.token, State.RESERVED)):
            self.held[before.token].pop(before.id, None)
            if not self.held[before.token]:
                del self.held[before.token]
        self.first(before.queue, before.state)


def _set(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
