"""The file: who holds its lock reads what others appended, changes the tables, and appends one line that says how."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hesape.errors import OutcomeUnknownError, StoreBusyError, StoreRefusedError
from hesape_toy.errors import translate_errors
from hesape_toy.tables import Tables

HEADER: Final = b'{"hesape-toy": 1}\n'
_WORTH_REWRITING: Final = 1_000
"""Below this many lines a journal isn't written anew."""


def encoded(line: object) -> bytes:
    """A line as it is written: ASCII, so that a newline ends it and nothing else does."""
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


class Journal:
    """One process's view of the file. Threads share it; a forked child opens its own (E2)."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        """Remember the file; it is opened, or made, at the first step."""
        self.path = path
        self._timeout_s = timeout_s
        self._file = self._lock = -1
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._close_files()

    @contextmanager
    def step(self) -> Iterator[Tables]:
        """A block that has the store to itself; when it ends well, what it changed is on the disk (L6).

        Raises `StoreBusyError` when others don't let go of the file in time, `StoreRefusedError` when it takes no more.
        """
        if self._pid != os.getpid():
            self._begin()
        with translate_errors(self.path), self._alone():
            tables = self._catch_up()
            try:
                yield tables
                if tables.changes:
                    self._append(encoded(tables.changes))
                    tables.changes = {}
            except BaseException:
                if tables.changes:
                    self._forget()  # memory is ahead of the file
                raise
            self._rewrite_if_worth_it()

    def close(self) -> None:
        """Close the file; the next step opens it again."""
        if self._pid != os.getpid():
            self._begin()
        with self._mutex:
            self._close_files()

    # The lock.

    @contextmanager
    def _alone(self) -> Iterator[None]:
        deadline = time.monotonic() + self._timeout_s
        if not self._mutex.acquire(timeout=self._timeout_s):
            raise self._busy() from TimeoutError("another thread is using it")
        try:
            if self._lock < 0:
                self._lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._wait_for_lock(deadline)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
        finally:
            self._mutex.release()

    def _wait_for_lock(self, deadline: float) -> None:
        pause = 0.001
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() + pause > deadline:
                    raise self._busy() from error
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _busy(self) -> StoreBusyError:
        return StoreBusyError(f"the journal {self.path} was in use for more than {self._timeout_s:g} s")

    # Read.

    def _catch_up(self) -> Tables:
        self._open()
        size = os.fstat(self._file).st_size
        data = b""
        while len(data) < size - self._end:
            data += os.pread(self._file, size - self._end - len(data), self._end + len(data))
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n")[:-1]:
            self._tables.apply(self._decoded(line))
        self._end += len(whole)
        self._written += whole.count(b"\n")
        if len(whole) < len(data):
            os.ftruncate(self._file, self._end)  # somebody died while writing this: it never was
        return self._tables

    def _decoded(self, line: bytes) -> dict[str, Any]:
        try:
            found = json.loads(line)
        except ValueError as error:
            raise StoreRefusedError(f"the journal {self.path} is damaged at {line[:60]!r}") from error
        if not isinstance(found, dict):
            raise StoreRefusedError(f"the journal {self.path} is damaged: expected an object, found {line[:60]!r}")
        return found

    def _open(self) -> None:
        """Open the file, or open it anew when another process has replaced it."""
        with suppress(FileNotFoundError):
            if self._file >= 0 and os.path.samestat(os.fstat(self._file), self.path.stat()):
                return
        self._forget()
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        if os.fstat(self._file).st_size < len(HEADER):
            os.ftruncate(self._file, 0)
            os.write(self._file, HEADER)
            os.fsync(self._file)
            self._sync_folder()
        if os.pread(self._file, len(HEADER), 0) != HEADER:
            self._forget()
            raise StoreRefusedError(f"{self.path} is no journal of this driver: expected {HEADER!r} as its first line")
        self._end = len(HEADER)

    # Write.

    def _append(self, line: bytes) -> None:
        quota = self._tables.quota
        if quota is not None and self._end + len(line) > quota:
            raise OSError(errno.EDQUOT, f"its quota is {quota} bytes", str(self.path))
        try:
            _write(self._file, line)
        except BaseException as error:
            try:
                os.ftruncate(self._file, self._end)
            except OSError:
                raise OutcomeUnknownError(f"the journal {self.path}: {error}") from error
            raise
        self._end += len(line)
        self._written += 1

    def _rewrite_if_worth_it(self) -> None:
        """Leave out what is over, when the file is mostly that; the old file stays until the new one is complete."""
        tables = self._tables
        if self._written < _WORTH_REWRITING + 4 * (len(tables.jobs) + len(tables.entries) + len(tables.workers)):
            return
        fresh = Path(f"{self.path}.new")
        with suppress(OSError):  # then the long one goes on
            file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
            try:
                _write(file, HEADER + b"".join(map(encoded, tables.snapshot())))
            finally:
                os.close(file)
            fresh.replace(self.path)
            self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    # Forget.

    def _forget(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1
        self._tables, self._end, self._written = Tables(), 0, 0

    def _close_files(self) -> None:
        self._forget()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
    os.fsync(file)
