"""Times at the edge are aware datetimes; inside they are whole microseconds since the epoch, UTC (T1, T3)."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from hesape.errors import TimeInvalidError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_US = (datetime.min.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST_US = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND
MAX_DELAY_S = 100 * 365.25 * 86400
"""The longest delay, a century in seconds: every store's time column holds now plus this."""


def to_us(moment: datetime) -> int:
    """Microseconds since the epoch of an aware datetime; a naive one raises `TimeInvalidError` (T1)."""
    if not isinstance(moment, datetime):
        message = f"{moment!r}: expected an aware datetime"
        raise TimeInvalidError(message)
    if moment.utcoffset() is None:
        message = f"{moment!r} has no time zone: expected an aware datetime, such as datetime.now(UTC)"
        raise TimeInvalidError(message)
    us = (moment - EPOCH) // _MICROSECOND
    if not _FIRST_US <= us <= _LAST_US:
        message = f"{moment!r} is outside the years 1 to 9999 of UTC"
        raise TimeInvalidError(message)
    return us


def from_us(us: int) -> datetime:
    """The aware UTC datetime of microseconds since the epoch; a number that somebody forged gives the nearest end."""
    try:
        return EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return EPOCH + timedelta(microseconds=_LAST_US if us > 0 else _FIRST_US)


def seconds(duration: float | timedelta, what: str = "delay") -> float:
    """A duration as a finite number of seconds, else `TimeInvalidError` (T3)."""
    if isinstance(duration, timedelta):
        duration = duration.total_seconds()
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        message = f"{what} {duration!r}: expected seconds or a timedelta"
        raise TimeInvalidError(message)
    if not -math.inf < duration <= MAX_DELAY_S:  # an integer may be too large for a float
        message = f"{what} {_short(duration)}: expected at most {MAX_DELAY_S:.0f} seconds, a century"
        raise TimeInvalidError(message)
    return float(max(duration, -MAX_DELAY_S))


def _short(number: float) -> str:
    return repr(number) if isinstance(number, float) or abs(number) < _LAST_US else "of a whole number too large"


def delay_us(duration: float | timedelta, what: str = "delay") -> int:
    """A delay in microseconds; what is negative means now (T3)."""
    return max(0, round(seconds(duration, what) * 1_000_000))
