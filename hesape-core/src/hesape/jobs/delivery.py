"""What one delivery of a job knows: its token, its deadline, the driver behind it, how it was settled.

It lies beside the job, in a table that only this package reaches: a copy of a job has no delivery, and nothing that a
handler writes on its job changes the grant it runs under or the row it settles.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import attrs

from hesape.errors import AlreadySettledError, DetachedError, LeaseLostError
from hesape.records import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from hesape.jobs.job import Job


@runtime_checkable
class Settles(Protocol):
    """The four things that a running job asks of what it came off. `hesape.Driver` and `FakeJob` offer them."""

    def delete_jobs(self, jobs: Sequence[Job], *, tx: object = None) -> list[Job]:
        """Remove finished jobs; return those whose delivery was no longer current."""

    def release_job(self, job: Job, delay: float | timedelta, *, spent: bool = True, tx: object = None) -> None:
        """Put a job back, due after `delay`; `LeaseLostError` when the delivery isn't current."""

    def fail_job(self, job: Job, cause: BaseException | str | None, *, tx: object = None) -> None:
        """Park a job with its cause; `LeaseLostError` when the delivery isn't current."""

    def extend(self, jobs: Sequence[Job], lease: float | timedelta) -> tuple[list[datetime], list[Job]]:
        """Move the deadlines of jobs; return those of the current ones, in order, and the lost jobs."""


@attrs.define(eq=False)
class Delivery:
    """What one delivery knows. Of use to core, drivers fence by `job.record()`."""

    id: str
    tenant: str
    action: str
    token: bytes = attrs.field(repr=False)
    reserved_until_us: int | None
    expires: float
    """When the lease ends by this process's monotonic clock, at the earliest: until then settling is repeated (S5)."""
    exceptions_before: int
    retry_shift_us: int = 0
    lapses: int = 0
    """Deliveries before this one that ended without any outcome (L2)."""
    driver: Settles | None = None
    kind: str = ""
    """How it was settled: "", "release", "delete" or "fail"."""
    provisional: bool = False
    """It was settled in a transaction that somebody else commits (S4)."""
    lock: threading.RLock = attrs.field(factory=threading.RLock, repr=False)


_deliveries: WeakKeyDictionary[Job, Delivery] = WeakKeyDictionary()


def find(job: Job) -> Delivery | None:
    """The delivery of a job, or `None`."""
    return _deliveries.get(job)


def begin(job: Job, delivery: Delivery) -> None:
    """Lay a delivery beside a job."""
    _deliveries[job] = delivery


def attached(job: Job) -> Delivery:
    """The delivery of a job that came off a queue, else `DetachedError`."""
    delivery = _deliveries.get(job)
    if delivery is None or delivery.driver is None:
        raise DetachedError
    return delivery


def key_of(job: Job) -> Key:
    """The id and token that a driver fences by. `DetachedError` without a delivery."""
    delivery = _deliveries.get(job)
    if delivery is None:
        raise DetachedError
    return Key(delivery.id, delivery.token)


def mark_deleted(job: Job) -> None:
    """Record that a worker deleted it together with others."""
    attached(job).kind = "delete"


def extend_one(job: Job, lease: float | timedelta) -> datetime:
    """Extend one job through its driver; `LeaseLostError` when the delivery isn't current."""
    driver = attached(job).driver
    assert driver is not None  # noqa: S101 - attached() saw it
    deadlines, lost = driver.extend([job], lease)
    if lost:
        raise lease_lost(job)
    return deadlines[0]


def lease_lost(job: Job) -> LeaseLostError:
    """The error of a delivery that is no longer current (L4)."""
    return LeaseLostError(f"the lease of job {job.id} ({job.resolved_name}) is over: another delivery may hold it")


def delete_one(driver: Settles, job: Job, tx: object) -> None:
    """Delete one job; `LeaseLostError` when the delivery isn't current."""
    if driver.delete_jobs([job], tx=tx):
        raise lease_lost(job)


def kind_of(job: Job) -> str:
    """How a job was settled, "" when it wasn't."""
    delivery = _deliveries.get(job)
    return "" if delivery is None else delivery.kind


def settle(job: Job, kind: str, call: Callable[[Settles], None], tx: object) -> None:
    """Settle once: the same kind again is a no-op, another raises `AlreadySettledError` (S2)."""
    delivery = attached(job)
    with delivery.lock:
        if delivery.kind == kind:
            return
        if delivery.kind:
            message = f"job {job.id} was settled by {delivery.kind} before, {kind} can't follow"
            raise AlreadySettledError(message)
        assert delivery.driver is not None  # noqa: S101 - attached() saw it
        call(delivery.driver)
        delivery.provisional = tx is not None
        delivery.kind = kind
