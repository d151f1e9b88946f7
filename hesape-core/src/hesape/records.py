"""What passes between core and a store: plain values, no behaviour. Times are microseconds since the epoch, UTC."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping


class Unique(NamedTuple):
    """The key that a job holds from its push on, whatever becomes of it (I2)."""

    key: str
    ttl_us: int


class NewRow(NamedTuple):
    """One job as a store receives it.

    The store computes `due = max(its now, run_at_us)` or `its now + delay_us`, in the statement that stores (G4, T2).
    """

    id: str
    envelope: bytes
    tenant: str
    name: str
    queue: str
    priority: int
    run_at_us: int | None
    delay_us: int
    unique: Unique | None


class Row(NamedTuple):
    """One job as a store returns it. `tenant`, `name` and `queue` are the searchable copies, not the envelope's."""

    id: str
    envelope: bytes
    tenant: str
    name: str
    queue: str
    priority: int
    due_us: int
    attempts: int
    lapses: int
    exceptions: int
    last_error: str | None
    reserved_until_us: int | None
    pushed_us: int
    retried_us: int | None
    failed_us: int | None


class Key(NamedTuple):
    """One delivery: a job's id and the token of the claim that delivered it."""

    id: str
    token: bytes


def new_token() -> bytes:
    """A token of 16 random bytes, minted before a claim is sent (L4). Safe across a fork."""
    return os.urandom(16)


class Claim(NamedTuple):
    """What a worker asks of `reserve`."""

    queues: tuple[str, ...]
    """Drained strictly in this order (O3)."""
    n: int
    lease_us: int
    token: bytes
    """The token of every delivery of this claim; the same token again returns the same deliveries (L4)."""
    worker: str = ""
    """A registered worker, whose death ends the deliveries; empty: their lease alone ends them."""
    done: tuple[Key, ...] = ()
    """Deliveries to delete first, in the same atomic step."""
    repeat: bool = False
    """An earlier send of this claim may have been executed: an absent row of `done` counts as deleted (S5)."""


class Claimed(NamedTuple):
    """What `reserve` answers."""

    rows: list[Row]
    lost: list[Key]
    """Those of `done` that were no longer current: nothing was deleted for them."""
    paused: frozenset[str]
    """Every paused queue of the connection."""
    now_us: int
    next_due_us: int | None
    """When the next job of these queues, paused ones left out, falls due; `None`: none is scheduled."""
    members: Mapping[str, str] | None = None
    """Of a composite: the connection that each row came off, by the row's id."""


class WorkerRow(NamedTuple):
    """A registered worker as the store sees it."""

    worker: str
    beat_us: int
    """When it was last heard of."""
    held: int
    """How many jobs it holds."""
    since_us: int | None
    """When the oldest of these was claimed; `None` when it holds none."""


class Finding(NamedTuple):
    """One thing that an operator should know of a store's settings, in a line for `hesape doctor`."""

    fine: bool
    text: str


class Migration(NamedTuple):
    """One numbered step of a schema. Steps are applied in order, once."""

    number: int
    title: str
    sql: str
    """What it does, as a person would run it; for a store without SQL a description."""


@attrs.frozen
class Counts:
    """How many jobs a queue has: due and unreserved, not due, reserved, failed (C1)."""

    pending: int
    delayed: int
    reserved: int
    failed: int

    @property
    def size(self) -> int:
        """All that is still to be done: pending, delayed and reserved."""
        return self.pending + self.delayed + self.reserved
