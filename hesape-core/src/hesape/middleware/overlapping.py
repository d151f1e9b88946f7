"""`without_overlapping`: one job at a time of a name, or of a key, within a tenant."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

import attrs

from hesape.errors import HesapeError, StoreError
from hesape.interrupts import uninterrupted
from hesape.jobs import attached
from hesape.middleware.renewing import Held, let_go, renew, time_for_lock
from hesape.middleware.scope import KeyOption, checked_duration, checked_key, key_within_tenant, put_back, store_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from hesape.driver import Driver
    from hesape.jobs import Delivery, Job

logger = logging.getLogger(__name__)

_WHAT: Final = "without_overlapping"
_RELEASE_AFTER_S: Final = 5.0
_SHORT_S: Final = 0.5
"""With less left of a lease, by this process's reckoning, the store is asked."""
_LEAST_S: Final = 0.001
_UNHEARD_S: Final = 5.0
"""A run of this length may have been taken for dead meanwhile, and its job delivered again."""


@attrs.frozen(kw_only=True)
class WithoutOverlapping:
    """Made by `without_overlapping`."""

    key: KeyOption = ""
    release_after_s: float = _RELEASE_AFTER_S
    drop: bool = False
    shared: bool = False

    def __call__(self, job: Job, step: Callable[[], object]) -> object:
        """Run the job under its lock; put it back, or drop it, when another job holds that."""
        driver, delivery = store_of(job), attached(job)
        name = "" if self.shared else job.name
        key = key_within_tenant(job, "shared" if self.shared else "overlap", name, self.key)
        held = Held(driver, key, delivery)
        if not _taken(held, _time_left(driver, job, delivery)):
            if not self.drop:
                put_back(job, self.release_after_s)
            return None
        began = monotonic()
        try:
            uninterrupted(lambda _: renew(held), False)  # noqa: FBT003 - the shape of retry.insist
            return step()
        finally:
            uninterrupted(lambda _: _end(held, driver, job, began), False)  # noqa: FBT003


def without_overlapping(
    key: KeyOption = "",
    *,
    release_after: float | timedelta = _RELEASE_AFTER_S,
    drop: bool = False,
    shared: bool = False,
) -> WithoutOverlapping:
    """At most one job at a time of a tenant, a job name and a key, which is text or a function of the job.

    Another one goes back for `release_after`, unspent, or with `drop` is dropped as done: right for work that makes
    something true, when somebody is at it already. With `shared` the lock doesn't count the job's name: jobs of
    different names that touch the same thing exclude each other by its key.

    The lock belongs to the job, so that its redelivery re-enters it. It never outlives the job's lease: it ends with
    what is left of that and is renewed as the lease is, by one thread a process. While the store can't say whether
    the lock is free, the job doesn't run. A handler that releases its job and goes on isn't protected any more.
    """
    return WithoutOverlapping(
        key=checked_key(_WHAT, key),
        release_after_s=checked_duration(_WHAT, "release_after", release_after),
        drop=drop,
        shared=shared,
    )


def _time_left(driver: Driver, job: Job, delivery: Delivery) -> float:
    """Seconds for which a lock may live now. `LeaseLostError` when another delivery may hold the job."""
    now = monotonic()
    if delivery.expires - now < _SHORT_S:
        deadline = job.extend(0).timestamp()
        delivery.expires = max(delivery.expires, now + deadline - driver.now() / 1_000_000)
    return time_for_lock(delivery)


def _taken(held: Held, ttl_s: float) -> bool:
    try:
        return held.take(max(ttl_s, _LEAST_S))
    except StoreError as error:
        logger.warning("job %s: its lock can't be taken, so it doesn't run: %s", held.delivery.id, error)
        return False


def _end(held: Held, driver: Driver, job: Job, began: float) -> None:
    """Free the lock, unless the delivery may be over: then it is perhaps the next delivery's, under the same owner."""
    let_go(held)
    now = monotonic()
    try:
        if held.delivery.kind or now - began < _UNHEARD_S:
            lost = now >= held.delivery.expires
        else:
            lost = bool(driver.extend([job], 0)[1])
        if not lost:
            held.free()
    except HesapeError as error:
        logger.warning("job %s: its lock couldn't be freed, and ends with its lease: %s", job.id, error)
