"""A job's full key, with run_at as exactly the microseconds that the table holds.

A datetime would do for most rows. It can't hold `-infinity` or a year outside 1 to 9999, which other clients may have
written and which are due like any other, and what it prints depends on the session's settings. The server's own binary
form depends on nothing.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format
from psycopg.types.numeric import Int2, Int8

from hesape.times import to_us

_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)  # the server counts from here
_EPOCH_US: Final = to_us(_EPOCH)
_FIRST: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_LAST: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
_TIMESTAMPTZ: Final = 1184
_TIMESTAMPTZ_ARRAY: Final = 1185


@attrs.frozen
class Instant:
    """A timestamptz as the server sends it: microseconds since 2000-01-01 UTC, or one of the two infinities."""

    server_us: int

    @classmethod
    def received(cls, data: bytes) -> Instant:
        """Read what `timestamptz_send` returned."""
        return cls(struct.unpack("!q", data)[0])

    @classmethod
    def at(cls, moment: datetime) -> Instant:
        """The instant of an aware datetime; a naive one raises `TimeInvalidError` (T1)."""
        return cls(to_us(moment) - _EPOCH_US)

    def as_us(self) -> int:
        """Microseconds since the epoch, within what a datetime holds."""
        return min(max(self.server_us, _FIRST), _LAST) + _EPOCH_US

    def as_datetime(self) -> datetime:
        """The same instant in UTC; what a datetime can't hold becomes the nearest that it can."""
        return _EPOCH + timedelta(microseconds=min(max(self.server_us, _FIRST), _LAST))


@attrs.frozen
class Key:
    """The primary key of one row of `que_jobs`, in the form in which statements take it."""

    queue: str
    priority: Int2
    run_at: Instant
    job_id: Int8

    @classmethod
    def received(cls, queue: str, priority: int, run_at: bytes, job_id: int) -> Key:
        """Read the first four columns of a row. Fixed integer types keep each statement prepared once."""
        return cls(queue, Int2(priority), Instant.received(run_at), Int8(job_id))

    def parameters(self) -> tuple[str, Int2, Instant, Int8]:
        """The values for `queue = %s and priority = %s and run_at = %s and job_id = %s`."""
        return (self.queue, self.priority, self.run_at, self.job_id)


@attrs.frozen
class Instants:
    """An array of timestamptz."""

    items: list[Instant]


class _InstantDumper(Dumper):
    format = Format.BINARY
    oid = _TIMESTAMPTZ

    def dump(self, obj: Instant) -> bytes:
        return struct.pack("!q", obj.server_us)


class _InstantsDumper(Dumper):
    format = Format.BINARY
    oid = _TIMESTAMPTZ_ARRAY

    def dump(self, obj: Instants) -> bytes:
        count = len(obj.items)
        sized = [part for item in obj.items for part in (8, item.server_us)]
        return struct.pack("!5i" + "iq" * count, 1, 0, _TIMESTAMPTZ, count, 1, *sized)


# Both classes are this package's own, so no other user of the process-wide adapters is affected.
psycopg.adapters.register_dumper(Instant, _InstantDumper)
psycopg.adapters.register_dumper(Instants, _InstantsDumper)


def key_arrays(keys: list[Key]) -> tuple[list[Int2], Instants, list[Int8]]:
    """Priorities, times and ids of `keys`, all of one queue, as three arrays."""
    return [key.priority for key in keys], Instants([key.run_at for key in keys]), [key.job_id for key in keys]
