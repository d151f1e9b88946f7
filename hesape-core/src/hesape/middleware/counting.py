"""A counter of a middleware, with when its time is over by the store's clock (K1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hesape import retry
from hesape.jobs import stored_key

if TYPE_CHECKING:
    from hesape.driver import Driver


class Count(NamedTuple):
    """What a counter says."""

    value: int
    end_us: int
    """When it starts anew, by the store's clock."""


def count(driver: Driver, key: str, by: int, per_s: float) -> Count:
    """Add `by`, 0 to look, in one atomic step. An unknown outcome is raised: adding twice isn't harmless."""
    name, ttl_us = stored_key("counter", key), round(per_s * 1_000_000)
    return Count(*retry.insist(lambda _: driver.increment(name, by, ttl_us), once=by != 0))


def seconds_until(driver: Driver, end_us: int) -> float:
    """How long until a moment of the store's clock."""
    return (end_us - retry.insist(lambda _: driver.now())) / 1_000_000
