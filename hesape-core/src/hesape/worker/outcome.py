"""What becomes of a delivery: pure decisions, before its handler runs and after it raised."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from hesape import times
from hesape.errors import (
    ArgumentsMismatchError,
    AttemptsExceededError,
    DeadlineExceededError,
    FailJob,
    HesapeError,
)

if TYPE_CHECKING:
    from hesape.attributes import Attributes
    from hesape.worker.options import WorkerOptions

MAX_LAPSES: Final = 5
"""Deliveries in a row without any outcome after which a job is parked that no limit of tries would end (L2)."""
_LONGEST_BACKOFF_S: Final = 3_600.0
_LAST_POWER: Final = 12
"""2^12 s is over an hour already; a greater power would only overflow."""
_SHOWN: Final = 300
"""How much of an earlier error the reason for parking repeats."""


class Limits(NamedTuple):
    """What bounds a job, field by field its own, else its handler's, else the worker's."""

    tries: int
    """Deliveries before it is parked; 0: no limit."""
    own_tries: bool
    """Whether the job or its handler said so: before `retry_until` only such tries count."""
    max_exceptions: int
    """Failures before it is parked; 0: no limit."""
    timeout_s: float
    """How long the handler may run; 0: no limit."""
    fail_on_timeout: bool
    retry_until_us: int | None
    attributes: Attributes
    """The job's over its handler's: they hold the list of delays."""


class Standing(NamedTuple):
    """How a delivery stands when its turn comes."""

    attempts: int
    """Deliveries, this one included."""
    exceptions: int
    """Failures before this delivery."""
    lapses: int
    """Deliveries in a row, just before this one, that ended without any outcome."""
    last_error: str | None
    now_us: int
    """The store's clock (T2)."""


class Park(NamedTuple):
    """The job isn't delivered any more and is listed with its cause (S1)."""

    cause: BaseException


class Release(NamedTuple):
    """The job is due again after this many seconds."""

    delay_s: float


def limits_of(attributes: Attributes, options: WorkerOptions, retry_until_us: int | None) -> Limits:
    """The limits of a job whose attributes, over its handler's, are `attributes`."""
    tries = attributes.tries or options.tries
    timeout_s = attributes.timeout or options.timeout_s
    return Limits(
        max(tries, 0),
        attributes.tries != 0,
        attributes.max_exceptions,
        max(timeout_s, 0.0),
        attributes.fail_on_timeout is True,
        retry_until_us,
        attributes,
    )


def tries_in_force(limits: Limits) -> int:
    """How many deliveries bound the job now; 0: none. A `retry_until` puts the worker's default out of force."""
    return limits.tries if limits.own_tries or limits.retry_until_us is None else 0


def before_running(standing: Standing, limits: Limits) -> HesapeError | None:
    """Why a job is parked before its handler runs, or `None` (L2)."""
    until_us = limits.retry_until_us
    if until_us is not None and standing.now_us >= until_us:
        message = f"its retry_until, {times.from_us(until_us).isoformat()}, has passed{_history(standing)}"
        return DeadlineExceededError(message)
    tries = tries_in_force(limits)
    if tries and standing.attempts > tries:
        message = f"this would be delivery {standing.attempts}, and its tries are {tries}{_history(standing)}"
        return AttemptsExceededError(message)
    if not tries and standing.lapses >= MAX_LAPSES:
        message = f"no limit of tries would end it{_history(standing)}"
        return AttemptsExceededError(message)
    return None


def _history(standing: Standing) -> str:
    said = ""
    if standing.lapses:
        said += f"; the last {standing.lapses} ended without an outcome: the worker died or the lease ran out"
    if standing.last_error:
        said += f"; the last error was {standing.last_error.partition(chr(10))[0][:_SHOWN]}"
    return said


def after_error(standing: Standing, limits: Limits, error: BaseException, *, timed_out: bool) -> Park | Release:
    """What becomes of a job whose handler raised `error`; the first rule that applies decides.

    `exceptions` counts this failure already: it is one more than the standing's.
    """
    if isinstance(error, FailJob | ArgumentsMismatchError):
        return Park(error)
    exceptions = standing.exceptions + 1
    tries = tries_in_force(limits)
    if (
        (limits.retry_until_us is not None and standing.now_us >= limits.retry_until_us)
        or (timed_out and limits.fail_on_timeout)
        or (limits.max_exceptions and exceptions >= limits.max_exceptions)
        or (tries and standing.attempts >= tries)
    ):
        return Park(error)
    return Release(delay_after(exceptions, limits.attributes))


def delay_after(failures: int, attributes: Attributes) -> float:
    """Seconds to wait after this many failures: the job's list, else the worker's own schedule."""
    delay_s = attributes.backoff_for(failures)
    return own_schedule(failures) if delay_s is None else delay_s


def own_schedule(failures: int) -> float:
    """2^failures seconds, at most an hour, times a random 0.75 to 1; any number of failures gives a number of it."""
    longest = min(_LONGEST_BACKOFF_S, 2.0 ** min(max(failures, 0), _LAST_POWER))
    return longest * random.uniform(0.75, 1.0)
