"""Waiting for somebody's commit, from any process (W1)."""

from __future__ import annotations

import ctypes
import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

_MODIFY: Final = 0x2
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS: Final = 65536

# The log is written before the commit can be seen: after an event one looks often, then less often.
_HOT_S: Final = 0.01
_WARM_S: Final = 0.1
_HOT_PAUSE_S: Final = 0.0005
_WARM_PAUSE_S: Final = 0.005
_COLD_PAUSE_S: Final = 0.25
"""A lost event costs this much."""
_POLL_PAUSE_S: Final = 0.01
"""How often one looks where there are no events."""


class Naps:
    """Short sleeps that end early when the write-ahead log is written to. For one thread at a time."""

    def __init__(self, log: Path) -> None:
        """Watch `log`; where there are no events, each sleep is a short one."""
        self._inotify = _open()
        self._log = log
        self._poll = select.poll()
        self._last_event = 0.0
        self._armed = False
        if self._inotify is not None:
            self._poll.register(self._inotify, select.POLLIN)

    def begin(self) -> None:
        """Forget what was seen by an earlier use, and watch what the log is now."""
        self._drain()
        self._last_event = 0.0
        self._arm()

    def nap(self, most_s: float) -> None:
        """Sleep at most that long."""
        if not self._armed:
            sleep(min(most_s, _POLL_PAUSE_S))
            self._arm()
            return
        age = monotonic() - self._last_event
        if age < _HOT_S:
            sleep(min(most_s, _HOT_PAUSE_S))
            self._drain()
            return
        pause = _WARM_PAUSE_S if age < _WARM_S else _COLD_PAUSE_S
        if self._poll.poll(max(1.0, min(most_s, pause) * 1000)):
            self._drain()

    def close(self) -> None:
        """Close the handle. The kernel may take twenty milliseconds over it, so that handles are kept."""
        if self._inotify is not None:
            os.close(self._inotify)
            self._inotify = None
            self._armed = False

    def _arm(self) -> None:
        if self._inotify is not None:
            self._armed = _add_watch(self._inotify, self._log)

    def _drain(self) -> None:
        """Forget the events that came; the log may be a new file by now."""
        if self._inotify is None:
            return
        try:
            events = os.read(self._inotify, _EVENTS)
        except BlockingIOError:
            return
        if events:
            self._last_event = monotonic()
            self._arm()


class Watches:
    """The naps of one driver, each used by one thread at a time and kept for the next."""

    def __init__(self, database: Path) -> None:
        """Watch the log of `database`."""
        self._log = database.with_name(database.name + "-wal")
        self._idle: list[Naps] = []
        self._pid = os.getpid()

    @contextmanager
    def naps(self) -> Iterator[Naps]:
        """Naps for the length of one wait."""
        if self._pid != os.getpid():  # a parent's handle is shared with it: reading there would take its events away
            self.close()
            self._pid = os.getpid()
        try:
            found = self._idle.pop()
        except IndexError:
            found = Naps(self._log)
        found.begin()
        try:
            yield found
        finally:
            self._idle.append(found)

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().close()


def _c_function(name: str) -> Callable[..., int] | None:
    if not sys.platform.startswith("linux"):
        return None
    found: Any = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    return found  # type: ignore[no-any-return]


_init = _c_function("inotify_init1")
_watch = _c_function("inotify_add_watch")


def _open() -> int | None:
    """A new inotify handle; `None` where there is none, or none left: the system limits them per user."""
    if _init is None or _watch is None:
        return None
    handle = _init(_FLAGS)
    return handle if handle >= 0 else None


def _add_watch(inotify: int, path: Path) -> bool:
    """Watch a file; once more is harmless, and finds a new file of that name."""
    return _watch is not None and _watch(inotify, os.fsencode(path), _MODIFY | _DELETE_SELF | _MOVE_SELF) >= 0
