"""What the store keeps: jobs, queues, workers, and what expires."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import attrs

from hesape.drivers.memory.line import Line
from hesape.records import Row


class State(Enum):
    """Where a job is."""

    READY = "ready"
    SCHEDULED = "scheduled"
    RESERVED = "reserved"
    FAILED = "failed"


@attrs.define(eq=False)
class Stored:
    """One job: the envelope that never changes, and the state that does."""

    id: str
    envelope: bytes
    tenant: str
    name: str
    queue: str
    priority: int
    due_us: int
    sequence: int
    """Its place among equals: the order of pushing, then of putting back."""
    pushed_us: int
    state: State
    attempts: int = 0
    lapses: int = 0
    exceptions: int = 0
    last_error: str | None = None
    token: bytes | None = None
    worker: str = ""
    claimed_us: int | None = None
    reserved_until_us: int | None = None
    retried_us: int | None = None
    failed_us: int | None = None

    def row(self) -> Row:
        """What the contract calls a row."""
        return Row(
            self.id,
            self.envelope,
            self.tenant,
            self.name,
            self.queue,
            self.priority,
            self.due_us,
            self.attempts,
            self.lapses,
            self.exceptions,
            self.last_error,
            self.reserved_until_us,
            self.pushed_us,
            self.retried_us,
            self.failed_us,
        )

    def current(self, token: bytes, now_us: int) -> bool:
        """Whether a delivery under `token` may still settle it (L4)."""
        until = self.reserved_until_us
        return self.state is State.RESERVED and self.token == token and until is not None and now_us < until


@attrs.define(eq=False)
class Lane:
    """One queue: every job of it, and three lines."""

    jobs: dict[str, Stored] = attrs.field(factory=dict)
    ready: Line = attrs.field(factory=Line)
    """By priority, due time, sequence (O1)."""
    scheduled: Line = attrs.field(factory=Line)
    """By due time, sequence."""
    reserved: Line = attrs.field(factory=Line)
    """By the end of the lease, sequence."""

    def line(self, state: State) -> Line | None:
        """The line of a state; failed jobs stand in none."""
        lines = {State.READY: self.ready, State.SCHEDULED: self.scheduled, State.RESERVED: self.reserved}
        return lines.get(state)


class Entry(NamedTuple):
    """A lock's owner, a counter's value, a flag or the holder of a unique key, and when it ends; `None`: never."""

    value: str
    end_us: int | None


class Beat(NamedTuple):
    """A registered worker: when it was last heard of, and until when that counts."""

    beat_us: int
    end_us: int
