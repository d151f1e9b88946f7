"""Shared memory in which a worker process notes what its slots run, readable when nothing else of it answers."""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from typing import Final, Self

from hesape.records import Key

_ENTRY: Final = struct.Struct("=d36s16s4x")
_END: Final = struct.Struct("=d")


class Board:
    """One entry a slot: the delivery that it runs, and when its process must be done with it at the latest.

    Deadlines are of the monotonic clock, which all processes of a machine share. Noting takes half a microsecond, and
    no message: a handler that holds the interpreter for ever was noted before it began.
    """

    def __init__(self, fd: int, slots: int) -> None:
        """Map the memory behind `fd`."""
        self.fd = fd
        self.slots = slots
        self._memory = mmap.mmap(fd, _ENTRY.size * slots)

    @classmethod
    def new(cls, slots: int) -> Self:
        """A board that a child process can open by its file descriptor."""
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
        os.ftruncate(fd, _ENTRY.size * slots)
        return cls(fd, slots)

    def note(self, slot: int, job_id: str, token: bytes, deadline: float) -> None:
        """Say that a slot begins a delivery; infinity: it has no timeout."""
        _ENTRY.pack_into(self._memory, slot * _ENTRY.size, deadline, job_id.encode(), token)

    def clear(self, slot: int) -> None:
        """Say that a slot is done with its delivery."""
        _END.pack_into(self._memory, slot * _ENTRY.size, 0.0)

    def overdue(self, now: float) -> list[Key]:
        """The deliveries that their process should have been done with before `now`."""
        entries = (_ENTRY.unpack_from(self._memory, slot * _ENTRY.size) for slot in range(self.slots))
        return [Key(job_id.decode(), token) for deadline, job_id, token in entries if 0.0 < deadline < now]

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()
        os.close(self.fd)
