"""Who lives: each worker's process holds a lock on a file beside the database, which the system drops when it dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from pathlib import Path
from time import sleep
from typing import Final
from weakref import WeakSet

_TRIES: Final = 50
_PAUSE_S: Final = 0.002

_living: WeakSet[Liveness] = WeakSet()


class Liveness:
    """The locked files of one driver's workers, in the folder `DATABASE-workers`."""

    def __init__(self, database: Path, prefix: str) -> None:
        """Name the folder; nothing is made yet."""
        self._folder = database.with_name(database.name + "-workers")
        self._prefix = prefix
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()
        _living.add(self)

    def hold(self, worker: str) -> None:
        """Hold the worker's lock; a file that somebody removed is made and locked anew.

        When another process or driver object holds it already, the worker's life is shown by that one; the next call
        tries again.
        """
        with self._guard:
            path, held = self._path(worker), self._held.get(worker)
            if held is not None and _same(held, path):
                return
            if held is not None:
                os.close(self._held.pop(worker))
            self._folder.mkdir(mode=0o770, exist_ok=True)
            handle = _locked(path)
            if handle is not None:
                self._held[worker] = handle

    def release(self, worker: str) -> None:
        """Give the worker's lock up, if it is held here, and remove the file when nobody holds it."""
        with self._guard:
            held = self._held.pop(worker, None)
            if held is not None:
                os.close(held)
        _remove_unheld(self._path(worker))

    def is_alive(self, worker: str) -> bool:
        """Whether some process holds the worker's lock."""
        return _is_held(self._path(worker))

    def close(self) -> None:
        """Give up every lock."""
        with self._guard:
            while self._held:
                os.close(self._held.popitem()[1])

    def begin_in_child(self) -> None:
        """Close a forked child's copies: with them its parent would seem to live on."""
        self._guard = threading.Lock()
        self.close()

    def _path(self, worker: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._prefix}\n{worker}".encode()).hexdigest()[:40]


def _same(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _locked(path: Path) -> int | None:
    """Open and lock a file; `None` when somebody holds it for longer than a look after the dead takes."""
    for _ in range(_TRIES):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        if _try_lock(handle) and _same(handle, path):
            return handle
        os.close(handle)
        sleep(_PAUSE_S)
    return None


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(path: Path) -> bool:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(handle)
    finally:
        os.close(handle)


def _remove_unheld(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if _try_lock(handle):
            path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _after_in_child() -> None:
    for liveness in list(_living):
        liveness.begin_in_child()


os.register_at_fork(after_in_child=_after_in_child)
