"""Which jobs started, how often and when: shared between processes through one mapped file, no lock and no store.

Nothing but the standard library: the peers' environments use it, too.
"""

from __future__ import annotations

import mmap
import struct
import time
from pathlib import Path
from typing import Final, NamedTuple

FILE_VARIABLE: Final = "HESAPE_BENCH_STAMPS"
SLOTS_VARIABLE: Final = "HESAPE_BENCH_SLOTS"
_SLOT: Final = struct.Struct("=qq")
"""Starts, and the nanoseconds of the first one by the monotonic clock, which all processes of a machine share."""


class Seen(NamedTuple):
    """What the stamps say."""

    ran: int
    lost: int
    doubled: int
    first_ns: int
    last_ns: int

    @property
    def per_s(self) -> float:
        """Jobs a second between the first start and the last."""
        return (self.ran - 1) / max((self.last_ns - self.first_ns) / 1e9, 1e-9)


class Stamps:
    """One slot a job."""

    def __init__(self, path: Path, slots: int) -> None:
        """Map `path`, made anew when it isn't there."""
        if not path.exists():
            path.write_bytes(bytes(_SLOT.size * slots))
        self._file = path.open("r+b")
        self._map = mmap.mmap(self._file.fileno(), 0)
        self.slots = slots
        self._first_open = 0

    def stamp(self, slot: int) -> int:
        """Count a start of the job in `slot`; the how many-th it is."""
        now = time.monotonic_ns()
        starts, first = _SLOT.unpack_from(self._map, slot * _SLOT.size)
        _SLOT.pack_into(self._map, slot * _SLOT.size, starts + 1, first or now)
        return int(starts) + 1

    def starts(self, slot: int) -> int:
        """How often the job in `slot` started."""
        return int(_SLOT.unpack_from(self._map, slot * _SLOT.size)[0])

    def started_ns(self, slot: int) -> int:
        """When the job in `slot` started first, 0 when it didn't."""
        return int(_SLOT.unpack_from(self._map, slot * _SLOT.size)[1])

    def reached(self, slots: int) -> bool:
        """Whether each of the first `slots` has started; looks at each once, so that asking often costs nothing."""
        while self._first_open < slots and self.started_ns(self._first_open):
            self._first_open += 1
        return self._first_open >= slots

    def seen(self) -> Seen:
        """All slots together."""
        slots = list(_SLOT.iter_unpack(self._map[: self.slots * _SLOT.size]))
        firsts = [first for starts, first in slots if starts]
        return Seen(
            ran=len(firsts),
            lost=self.slots - len(firsts),
            doubled=sum(starts > 1 for starts, _ in slots),
            first_ns=min(firsts, default=0),
            last_ns=max(firsts, default=0),
        )

    def close(self) -> None:
        """Unmap."""
        self._map.close()
        self._file.close()
