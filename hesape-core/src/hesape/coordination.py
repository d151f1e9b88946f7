"""Locks, counters and flags on a store, atomic and expiring by its clock (K1)."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Self

from hesape import names, retry, times
from hesape.errors import ArgumentInvalidError, LockHeldError
from hesape.jobs import stored_key

if TYPE_CHECKING:
    from datetime import timedelta

    from hesape.driver import Driver


class Lock:
    """A lock with an owner: taken again by its owner it is renewed, and nobody else frees it."""

    def __init__(self, driver: Driver, key: str, ttl: float | timedelta, owner: str | None = None) -> None:
        """Name a lock that lives `ttl`; without an owner, a random one."""
        self._driver = driver
        self._key = stored_key("lock", _checked(key))
        self._name = key
        self._ttl_us = _ttl_us(ttl)
        self.owner = secrets.token_hex(16) if owner is None else names.check_text("lock owner", owner)

    def take(self) -> bool:
        """Take or renew it; whether it is held by this owner now."""
        return retry.insist(lambda _: self._driver.lock(self._key, self.owner, self._ttl_us))

    def free(self) -> bool:
        """Free it; whether this owner held it."""
        return retry.insist(lambda repeat: self._driver.unlock(self._key, self.owner) or repeat)

    def __enter__(self) -> Self:
        """Take it or raise `LockHeldError`."""
        if not self.take():
            message = f"the lock {self._name!r} is held by somebody else"
            raise LockHeldError(message)
        return self

    def __exit__(self, *_: object) -> None:
        """Free it."""
        self.free()


class Counter:
    """A count that starts anew some time after its first increment."""

    def __init__(self, driver: Driver, key: str, ttl: float | timedelta) -> None:
        """Name a counter that lives `ttl` from its first increment on."""
        self._driver = driver
        self._key = stored_key("counter", _checked(key))
        self._ttl_us = _ttl_us(ttl)

    def add(self, by: int = 1) -> int:
        """Add and return the new value. `OutcomeUnknownError` when the answer was lost: adding twice isn't harmless."""
        return retry.insist(lambda _: self._driver.increment(self._key, by, self._ttl_us), once=True)[0]

    def value(self) -> int:
        """The value now, 0 when there is none."""
        return self.look()[0]

    def look(self) -> tuple[int, int]:
        """The value and when it starts anew, in microseconds since the epoch by the store's clock."""
        return retry.insist(lambda _: self._driver.increment(self._key, 0, self._ttl_us))


class Flag:
    """A short text that everybody on the connection sees."""

    def __init__(self, driver: Driver, key: str, ttl: float | timedelta | None = None) -> None:
        """Name a flag that lives `ttl`, or until it is erased."""
        self._driver = driver
        self._key = stored_key("flag", _checked(key))
        self._ttl_us = None if ttl is None else _ttl_us(ttl)

    def set(self, value: str = "1") -> None:
        """Set it to at most 255 printable characters."""
        names.check_text("flag value", value)
        retry.insist(lambda _: self._driver.write_flag(self._key, value, self._ttl_us))

    def value(self) -> str | None:
        """Its value, `None` when it isn't set."""
        return retry.insist(lambda _: self._driver.read_flag(self._key))

    def erase(self) -> None:
        """Remove it."""
        retry.insist(lambda _: self._driver.erase_flag(self._key))


def _checked(key: object) -> str:
    if not isinstance(key, str) or not key:
        message = f"key {key!r}: expected a text that isn't empty"
        raise ArgumentInvalidError(message)
    return key


def _ttl_us(ttl: float | timedelta) -> int:
    found = times.delay_us(ttl, "ttl")
    if found <= 0:
        message = f"ttl {ttl!r}: expected more than 0 seconds"
        raise ArgumentInvalidError(message)
    return found
