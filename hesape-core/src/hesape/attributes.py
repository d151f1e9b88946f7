"""What a job asks of the worker that runs it; travels in the envelope. Zero or `None` leaves it to the worker."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape import names, times
from hesape.errors import AttributesInvalidError, TimeInvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ENCODED: Final = 4 * 1024
"""The most bytes that encoded attributes take (P5)."""
_MOST = 2**31 - 1


def _duration(value: float | timedelta) -> float:
    try:
        return times.seconds(value, "attribute")
    except TimeInvalidError as error:
        raise AttributesInvalidError(str(error)) from error


def _durations(value: float | timedelta | Iterable[float | timedelta]) -> tuple[float, ...]:
    entries = (value,) if isinstance(value, int | float | timedelta) else tuple(value)
    found = tuple(_duration(entry) for entry in entries)
    if any(entry < 0 for entry in found):
        message = f"backoff {found}: a delay can't be negative; 0 means at once"
        raise AttributesInvalidError(message)
    return found


def _whole(instance: Attributes, attribute: attrs.Attribute[int], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST:
        message = f"{attribute.name} {value!r}: expected a whole number"
        raise AttributesInvalidError(message)


def _not_negative(instance: Attributes, attribute: attrs.Attribute[Any], value: float) -> None:
    if value < 0:
        message = f"{attribute.name} {value!r}: can't be negative"
        raise AttributesInvalidError(message)


def _yes_no(instance: Attributes, attribute: attrs.Attribute[bool | None], value: object) -> None:
    if value is not None and not isinstance(value, bool):
        message = f"{attribute.name} {value!r}: expected True, False or None"
        raise AttributesInvalidError(message)


def _moment(value: datetime | None) -> datetime | None:
    return None if value is None else times.from_us(times.to_us(value))


def _text(value: object) -> str:
    return names.check_text("attribute", value, empty=True)


@attrs.frozen(kw_only=True)
class Attributes:
    """The settings of one job. Durations are seconds or timedeltas, kept as seconds.

    A value out of range raises `AttributesInvalidError`, a naive `retry_until` `TimeInvalidError`.
    """

    tries: int = attrs.field(default=0, validator=_whole)
    """Deliveries before the job is parked; negative: for ever."""
    backoff: tuple[float, ...] = attrs.field(default=(), converter=_durations)
    """Delay after the first, second, ... failure; the last repeats, 0 is at once. A number is a list of one."""
    timeout: float = attrs.field(default=0.0, converter=_duration)
    """Seconds that the handler may run; negative: no limit."""
    max_exceptions: int = attrs.field(default=0, validator=[_whole, _not_negative])
    """Failures before the job is parked, whatever its tries."""
    retry_until: datetime | None = attrs.field(default=None, converter=_moment)
    """After this moment the job isn't retried, whatever its tries. UTC."""
    fail_on_timeout: bool | None = attrs.field(default=None, validator=_yes_no)
    """Park the job when it runs past its timeout."""
    unique_for: float = attrs.field(default=0.0, converter=_duration, validator=_not_negative)
    """Seconds for which no other job with the same unique key is accepted (I2)."""
    unique_key: str = attrs.field(default="", converter=_text)
    """What `unique_for` holds, within the tenant; by default the job's name and the digest of its payload."""
    queue: str = attrs.field(default="", converter=_text)
    """The queue of a job that names none itself."""
    wraps: str = attrs.field(default="", converter=_text)
    """The class behind a job that wraps another."""

    def backoff_for(self, failures: int) -> float | None:
        """Seconds to wait after this many failures, counted from one; `None`: the worker's schedule decides."""
        if not self.backoff:
            return None
        return self.backoff[min(max(failures, 1), len(self.backoff)) - 1]

    def over(self, registered: Attributes) -> Attributes:
        """These settings, and `registered` where these leave something open, field by field."""
        if self is NO_ATTRIBUTES:
            return registered
        if registered is NO_ATTRIBUTES:
            return self
        return attrs.evolve(
            registered, **{name: value for name, value in _fields(self) if value != getattr(NO_ATTRIBUTES, name)}
        )

    def encode(self) -> str:
        """The JSON object of what is set; `{}` when nothing is. Over 4 KiB it raises `AttributesInvalidError`."""
        if self is NO_ATTRIBUTES:
            return "{}"
        found = {name: _plain(value) for name, value in _fields(self) if value != getattr(NO_ATTRIBUTES, name)}
        text = json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        if len(text.encode()) > MAX_ENCODED:
            message = f"the attributes take {len(text.encode())} bytes, at most {MAX_ENCODED} are stored"
            raise AttributesInvalidError(message)
        return text

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Attributes:
        """Read what `encode` wrote; a name that this version doesn't know is left out."""
        if not found:
            return NO_ATTRIBUTES
        known = {name: found[name] for name in _NAMES if name in found}
        if "retry_until" in known:
            known["retry_until"] = times.EPOCH + timedelta(microseconds=known["retry_until"])  # no nearest end here
        return cls(**known)


NO_ATTRIBUTES: Final = Attributes()
"""Nothing asked for: the one object where a job says nothing, so that the hot path compares by identity."""
_NAMES = tuple(field.name for field in attrs.fields(Attributes))


def _fields(attributes: Attributes) -> list[tuple[str, Any]]:
    return [(name, getattr(attributes, name)) for name in _NAMES]


def _plain(value: object) -> object:
    return times.to_us(value) if isinstance(value, datetime) else value
