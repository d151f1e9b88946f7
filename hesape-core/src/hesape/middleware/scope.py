"""What the middlewares share: the store behind a job, keys within its tenant, checked options."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from hesape import times
from hesape.driver import Driver
from hesape.errors import ArgumentInvalidError, UnsupportedError
from hesape.jobs import attached

if TYPE_CHECKING:
    from hesape.jobs import Job

KeyOption: TypeAlias = str | Callable[["Job"], str]
"""A key, or what tells it from the job."""
JITTER: Final = 0.1
"""Delays are longer by up to this part of them: what was refused together doesn't come back together."""
LEAST_PAUSE_S: Final = 0.05
"""No refused job comes back sooner, so that none of them spins."""


def store_of(job: Job) -> Driver:
    """The store that a job came from. `UnsupportedError` for a job that came off none."""
    driver = attached(job).driver
    if isinstance(driver, Driver):
        return driver
    message = (
        f"job {job.id} came off a {type(driver).__name__}, which has no locks and counters; "
        "in a test, push it to a hesape.testing.FakeQueue and drain that"
    )
    raise UnsupportedError(message)


def key_within_tenant(job: Job, kind: str, name: str, key: KeyOption) -> str:
    """A key of this tenant alone. Its parts are joined with their lengths, so that no two keys collide (P5)."""
    found = key if isinstance(key, str) else key(job)
    if not isinstance(found, str):
        message = f"key {found!r} for job {job.id}: expected text, found {type(found).__name__}"
        raise ArgumentInvalidError(message)
    return "".join(f"{len(part)}:{part}" for part in (kind, attached(job).tenant, name, found))


def put_back(job: Job, delay_s: float) -> None:
    """Release a job for about `delay_s`, its attempt unspent (S1)."""
    job.release(max(delay_s, LEAST_PAUSE_S) * random.uniform(1, 1 + JITTER), spent=False)


def checked_key(what: str, key: KeyOption) -> KeyOption:
    """A `key` option, or `ArgumentInvalidError`."""
    if not isinstance(key, str) and not callable(key):
        message = f"{what}: key {key!r}: expected text, or a function from the job to text"
        raise ArgumentInvalidError(message)
    return key


def checked_duration(what: str, name: str, value: float | timedelta) -> float:
    """A duration above 0 in seconds, or an `InvalidError` that names the middleware and the option."""
    found = times.seconds(value, f"{what}: {name}")
    if found <= 0:
        message = f"{what}: {name} {value!r}: expected more than 0 seconds"
        raise ArgumentInvalidError(message)
    return found


def checked_count(what: str, name: str, value: object) -> int:
    """A whole number of at least 1, or `ArgumentInvalidError`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"{what}: {name} {value!r}: expected a whole number of at least 1"
        raise ArgumentInvalidError(message)
    return value


def checked_call(what: str, name: str, value: object) -> None:
    """Refuse what is neither `None` nor callable."""
    if value is not None and not callable(value):
        message = f"{what}: {name} {value!r}: expected a function"
        raise ArgumentInvalidError(message)
