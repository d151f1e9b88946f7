"""`rate_limited`: so many runs in a time, within a tenant."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from hesape.errors import StoreError
from hesape.middleware.counting import count, seconds_until
from hesape.middleware.scope import (
    KeyOption,
    checked_count,
    checked_duration,
    checked_key,
    key_within_tenant,
    put_back,
    store_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from hesape.driver import Driver
    from hesape.jobs import Job

logger = logging.getLogger(__name__)

_WHAT: Final = "rate_limited"
_STORE_AWAY_S: Final = 5.0


@attrs.frozen(kw_only=True)
class RateLimited:
    """Made by `rate_limited`."""

    limit: int
    per_s: float
    key: KeyOption = ""
    release_after_s: float | None = None
    drop: bool = False

    def __call__(self, job: Job, step: Callable[[], object]) -> object:
        """Count the run, then run the job or put it back."""
        driver = store_of(job)
        key = key_within_tenant(job, "rate", "" if self.key else job.name, self.key)
        wait_s = self._refused_for(driver, key, job)
        if wait_s is None:
            return step()
        if not self.drop:
            put_back(job, wait_s)
        return None

    def _refused_for(self, driver: Driver, key: str, job: Job) -> float | None:
        """Seconds until it may run; `None`: now."""
        try:
            found = count(driver, key, 1, self.per_s)
            if found.value <= self.limit:
                return None
            return self.release_after_s or seconds_until(driver, found.end_us)
        except StoreError as error:
            logger.warning("job %s: its runs can't be counted, so it doesn't run: %s", job.id, error)
            return self.release_after_s or _STORE_AWAY_S


def rate_limited(
    limit: int,
    per: float | timedelta,
    *,
    key: KeyOption = "",
    release_after: float | timedelta | None = None,
    drop: bool = False,
) -> RateLimited:
    """At most `limit` runs in each window of `per`, of a tenant and a key; without a key, of a tenant and a job name.

    A run is counted, then decided about, in one atomic step on the store's clock; the window begins with its first
    run, so that around its end twice the limit may run in a short time. What is refused goes back unspent until the
    window is over, or for `release_after`, a tenth longer at most so that not all come back at once; with `drop` it is
    dropped as done. While the store can't count, nothing runs: what is protected is elsewhere and doesn't know. Jobs
    of different names with the same key count together.
    """
    return RateLimited(
        limit=checked_count(_WHAT, "limit", limit),
        per_s=checked_duration(_WHAT, "per", per),
        key=checked_key(_WHAT, key),
        release_after_s=None if release_after is None else checked_duration(_WHAT, "release_after", release_after),
        drop=drop,
    )
