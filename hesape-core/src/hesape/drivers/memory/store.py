"""The store: plain dictionaries and lines behind one lock, and how a job moves from state to state."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import attrs

from hesape.drivers.memory.line import Place
from hesape.drivers.memory.records import Beat, Entry, Lane, State, Stored


def machine_clock() -> int:
    """The machine's clock, in microseconds since the epoch."""
    return time.time_ns() // 1000


@attrs.define(eq=False, weakref_slot=True)
class Store:
    """All that is kept. Whoever reads or writes holds `changed`, which is also what `wait` waits on."""

    clock: Callable[[], int] = machine_clock
    changed: threading.Condition = attrs.field(factory=threading.Condition)
    jobs: dict[str, Stored] = attrs.field(factory=dict)
    lanes: dict[str, Lane] = attrs.field(factory=dict)
    held: dict[bytes, dict[str, Stored]] = attrs.field(factory=dict)
    """The reserved jobs of each claim, in the order they were claimed."""
    paused: set[str] = attrs.field(factory=set)
    workers: dict[str, Beat] = attrs.field(factory=dict)
    entries: dict[str, Entry] = attrs.field(factory=dict)
    sequence: int = 0

    def add(self, job: Stored) -> None:
        """Take a job in."""
        lane = self.lanes.get(job.queue)
        if lane is None:
            lane = self.lanes[job.queue] = Lane()
        self.jobs[job.id] = lane.jobs[job.id] = job
        self._enter(job, lane)

    def remove(self, job: Stored) -> None:
        """Forget a job, and its queue with its last job."""
        lane = self.lanes[job.queue]
        self._leave(job, lane)
        del self.jobs[job.id], lane.jobs[job.id]
        if not lane.jobs:
            del self.lanes[job.queue]

    def reserve(self, job: Stored, token: bytes, worker: str, now_us: int, until_us: int) -> None:
        """Hand a job out, which `take` took off the line of the ready already (L2)."""
        job.attempts += 1
        job.token, job.worker, job.claimed_us, job.reserved_until_us = token, worker, now_us, until_us
        job.state = State.RESERVED
        self._enter(job, self.lanes[job.queue])

    def extend(self, job: Stored, until_us: int) -> None:
        """Move the end of a lease."""
        job.reserved_until_us = until_us
        self.lanes[job.queue].reserved.put(job.id, _place(job))

    def put_back(self, job: Stored, due_us: int, now_us: int) -> None:
        """Let a job wait again, due at `due_us`, behind its equals (O1)."""
        self.leave(job)
        job.due_us, job.sequence = due_us, self.next_sequence()
        job.state = State.READY if due_us <= now_us else State.SCHEDULED
        self._enter(job, self.lanes[job.queue])
        self.changed.notify_all()

    def free(self, job: Stored) -> None:
        """Let a reserved job be ready again in its old place; the delivery is over (L3, L8)."""
        self.leave(job)
        job.token, job.state = None, State.READY
        self._enter(job, self.lanes[job.queue])
        self.changed.notify_all()

    def lapse(self, job: Stored) -> None:
        """Free a job whose delivery ended without any outcome (L2)."""
        job.lapses += 1
        self.free(job)

    def ready(self, job: Stored) -> None:
        """Let a scheduled job be ready, which the caller took off its line already."""
        job.state = State.READY
        self._enter(job, self.lanes[job.queue])

    def park(self, job: Stored, now_us: int) -> None:
        """Let a job be failed."""
        self.leave(job)
        job.failed_us, job.state = now_us, State.FAILED

    def leave(self, job: Stored) -> None:
        """Take a job off its line, and end its reservation."""
        self._leave(job, self.lanes[job.queue])
        job.reserved_until_us, job.claimed_us, job.worker = None, None, ""

    def next_sequence(self) -> int:
        """A number above all before."""
        self.sequence += 1
        return self.sequence

    def entry(self, key: str, now_us: int) -> Entry | None:
        """What is kept under a key and hasn't expired (K1)."""
        found = self.entries.get(key)
        return None if found is None or (found.end_us is not None and found.end_us <= now_us) else found

    def _enter(self, job: Stored, lane: Lane) -> None:
        line = lane.line(job.state)
        if line is not None:
            line.put(job.id, _place(job))
        if job.state is State.RESERVED and job.token is not None:
            self.held.setdefault(job.token, {})[job.id] = job

    def _leave(self, job: Stored, lane: Lane) -> None:
        line = lane.line(job.state)
        if line is not None:
            line.leave(job.id)
        if job.state is State.RESERVED and job.token is not None:
            claim = self.held[job.token]
            del claim[job.id]
            if not claim:
                del self.held[job.token]


def _place(job: Stored) -> Place:
    if job.state is State.READY:
        return (job.priority, job.due_us, job.sequence)
    if job.state is State.RESERVED:
        return (job.reserved_until_us or 0, job.sequence)
    return (job.due_us, job.sequence)
