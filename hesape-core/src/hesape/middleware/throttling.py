"""`throttles_exceptions`: a circuit breaker, for handlers whose failures say that something they need is down."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from hesape.error_text import error_text
from hesape.errors import ArgumentsMismatchError, FailJob, HesapeError, StoreError
from hesape.middleware.counting import count, seconds_until
from hesape.middleware.scope import (
    KeyOption,
    checked_call,
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

_WHAT: Final = "throttles_exceptions"
_STORE_AWAY_S: Final = 5.0


@attrs.frozen(kw_only=True)
class ThrottlesExceptions:
    """Made by `throttles_exceptions`."""

    limit: int
    per_s: float
    key: KeyOption = ""
    by_job: bool = False
    retry_after_s: float | None = None
    release_after_s: float | None = None
    when: Callable[[Exception], bool] | None = None
    delete_when: Callable[[Exception], bool] | None = None
    fail_when: Callable[[Exception], bool] | None = None

    def __call__(self, job: Job, step: Callable[[], object]) -> object:
        """Run the job unless there were too many failures; count its own."""
        driver, key = store_of(job), self._key(job)
        wait_s = self._open_for(driver, key, job)
        if wait_s is not None:
            put_back(job, wait_s)
            return None
        try:
            return step()
        except (FailJob, ArgumentsMismatchError):  # about this job alone
            raise
        except Exception as error:
            if not self._conclude(driver, key, job, error):
                raise
            return None

    def _key(self, job: Job) -> str:
        if self.by_job:
            return key_within_tenant(job, "failures of a job", "", job.id)
        return key_within_tenant(job, "failures", "" if self.key else job.name, self.key)

    def _open_for(self, driver: Driver, key: str, job: Job) -> float | None:
        """Seconds until it may run again; `None`: now."""
        try:
            found = count(driver, key, 0, self.per_s)
            if found.value < self.limit:
                return None
            return self.release_after_s or seconds_until(driver, found.end_us)
        except StoreError as error:
            logger.warning("job %s: failures can't be looked up, so it doesn't run: %s", job.id, error)
            return self.release_after_s or _STORE_AWAY_S

    def _conclude(self, driver: Driver, key: str, job: Job, error: Exception) -> bool:
        """Decide about a failure; False leaves the job to the worker."""
        if job.is_settled:
            return False
        if self.delete_when is not None and self.delete_when(error):
            logger.warning("job %s (%s) is dropped after %s", job.id, job.resolved_name, type(error).__name__)
            job.delete()
            return True
        if self.fail_when is not None and self.fail_when(error):
            job.exceptions += 1
            job.fail(error)
            return False
        if self.when is not None and not self.when(error):
            return False
        try:
            count(driver, key, 1, self.per_s)
        except HesapeError as failure:
            logger.warning("job %s: its failure couldn't be counted: %s", job.id, failure)
        return self._put_back(job, error)

    def _put_back(self, job: Job, error: Exception) -> bool:
        """Put the job back after a counted failure, if that is asked for and not one too many for it."""
        if self.retry_after_s is None or 0 < job.max_exceptions <= job.exceptions + 1:
            return False
        job.exceptions += 1
        job.last_error = error_text(error)
        put_back(job, self.retry_after_s)
        return True


def throttles_exceptions(
    limit: int,
    per: float | timedelta,
    *,
    key: KeyOption = "",
    by_job: bool = False,
    retry_after: float | timedelta | None = None,
    release_after: float | timedelta | None = None,
    when: Callable[[Exception], bool] | None = None,
    delete_when: Callable[[Exception], bool] | None = None,
    fail_when: Callable[[Exception], bool] | None = None,
) -> ThrottlesExceptions:
    """After `limit` failures within `per`, run no job of the tenant and the key until that time is over.

    Failures are counted by job name, by `key`, or `by_job` for each job alone. The time begins with the first failure;
    a success doesn't reset it. Jobs that run already when the limit is reached run on. What is refused goes back
    unspent until the time is over, or for `release_after`; while the store can't tell, nothing runs.

    A failed job is the worker's: it counts the failure and retries by the job's backoff. With `retry_after` it goes
    back for that long instead, unspent, with its error and its exceptions recorded, until its own `max_exceptions`:
    for work that must outlast an outage. First the functions of the exception decide, in this order: `delete_when`
    drops the job, `fail_when` parks it, and what `when` doesn't accept is the worker's and isn't counted.
    `hesape.FailJob` and arguments that don't fit are never counted.
    """
    for name, call in (("when", when), ("delete_when", delete_when), ("fail_when", fail_when)):
        checked_call(_WHAT, name, call)
    return ThrottlesExceptions(
        limit=checked_count(_WHAT, "limit", limit),
        per_s=checked_duration(_WHAT, "per", per),
        key=checked_key(_WHAT, key),
        by_job=by_job,
        retry_after_s=None if retry_after is None else checked_duration(_WHAT, "retry_after", retry_after),
        release_after_s=None if release_after is None else checked_duration(_WHAT, "release_after", release_after),
        when=when,
        delete_when=delete_when,
        fail_when=fail_when,
    )
