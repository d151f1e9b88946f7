"""A clock that stands still until it is moved."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hesape import times

if TYPE_CHECKING:
    from datetime import timedelta


class Clock:
    """The time of a store, in a test's hands. Called, it answers in microseconds since the epoch."""

    def __init__(self, start: datetime | None = None) -> None:
        """Stand at an aware datetime, by default at the machine's now."""
        self._now_us = times.to_us(start or datetime.now(UTC))

    @property
    def now(self) -> datetime:
        """Where it stands."""
        return times.from_us(self._now_us)

    def move(self, duration: float | timedelta) -> None:
        """Move it by seconds or a timedelta; a negative one moves it back."""
        self._now_us += round(times.seconds(duration, "duration") * 1_000_000)

    def set(self, moment: datetime) -> None:
        """Set it to an aware datetime."""
        self._now_us = times.to_us(moment)

    def __call__(self) -> int:
        """Answer as a store's clock."""
        return self._now_us
