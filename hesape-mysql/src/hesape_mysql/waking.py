"""Waiting for work: what this process stores wakes at once, what others store is seen by a cheap look (W1).

MySQL can't notify. The look is one statement of index dives that touches no row, and its reply one packet: at the
default pace it costs an idle worker less than one hundredth of a core, and finds a job some ten milliseconds after its
commit. Every look asks for what is ready, one in some also for what fell due and whose lease ran out.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final
from weakref import WeakSet

import attrs
from pymysql.constants import COMMAND, ER
from pymysql.err import raise_mysql_exception

from hesape_mysql.pool import OwnSession

_FIRST_LOOK_S: Final = 0.002
"""After work the first look comes soon; later ones back off to the pace, and stay there while nothing comes."""
_THOROUGH_EVERY_S: Final = 0.1
_ERROR_PACKET: Final = 0xFF


class Looker:
    """Asks yes or no on one connection, past PyMySQL's reader, which costs more than the socket and the server."""

    def __init__(self, session: OwnSession, ready: str, thorough: str) -> None:
        """Ask with these two statements, made of `ASK_IF`."""
        self._session = session
        self._packets = [self._packet(ready), self._packet(thorough)]

    @staticmethod
    def _packet(sql: str) -> bytes:
        data = sql.encode()
        return struct.pack("<IB", len(data) + 1, COMMAND.COM_QUERY) + data

    def __call__(self, *, thorough: bool) -> bool:
        """Whether it is so."""
        self._session.in_step = False
        sock = self._session.connection._sock  # type: ignore[attr-defined]  # noqa: SLF001 - the point of this class
        sock.sendall(self._packets[thorough])
        reply = b""
        while len(reply) < 4 or len(reply) < 4 + int.from_bytes(reply[:3], "little"):  # noqa: PLR2004 - the header
            more = sock.recv(4096)
            if not more:
                raise ConnectionResetError
            reply += more
        self._session.in_step = True
        if reply[4] != _ERROR_PACKET:
            return False
        if int.from_bytes(reply[5:7], "little") == ER.SUBQUERY_NO_1_ROW:
            return True
        raise_mysql_exception(reply[4:])
        return False


@attrs.define(eq=False)
class _Waiter:
    """Somebody who waits."""

    queues: frozenset[str]
    woken: bool = False


class Waker:
    """The waiters of one driver."""

    def __init__(self, pace_s: float) -> None:
        """Look every `pace_s`."""
        self._pace_s = pace_s
        self._pause_s = min(_FIRST_LOOK_S, pace_s)
        self._changed = threading.Condition()
        self._waiters: WeakSet[_Waiter] = WeakSet()  # one that was interrupted anywhere is gone all the same
        _wakers.add(self)

    def stored(self, queues: set[str]) -> None:
        """Wake who waits for one of these queues."""
        with self._changed:
            for waiter in self._waiters:
                waiter.woken = waiter.woken or not waiter.queues.isdisjoint(queues)
            self._changed.notify_all()

    def wait(self, queues: Sequence[str], timeout_s: float, look: Callable[..., bool]) -> bool:
        """Block until a job of these queues may be due, at most `timeout_s`; whether it was woken."""
        waiter = _Waiter(frozenset(queues))
        with self._changed:
            self._waiters.add(waiter)
        woken = self._wait(waiter, timeout_s, look)
        self._pause_s = min(_FIRST_LOOK_S, self._pace_s) if woken else self._pace_s
        return woken

    def _wait(self, waiter: _Waiter, timeout_s: float, look: Callable[..., bool]) -> bool:
        deadline = monotonic() + timeout_s
        pause = self._pause_s
        thorough_at = 0.0
        while True:
            left = deadline - monotonic()
            with self._changed:
                if self._changed.wait_for(lambda: waiter.woken, max(0.0, min(pause, left))):
                    return True
            now = monotonic()
            if look(thorough=now >= thorough_at or left <= pause):
                return True
            if left <= pause:
                return False
            if now >= thorough_at:
                thorough_at = now + _THOROUGH_EVERY_S
            pause = min(2 * pause, self._pace_s)

    def forget(self) -> None:
        """Begin with a lock of one's own in a forked child, where nobody waits."""
        self._changed = threading.Condition()
        self._waiters = WeakSet()


_wakers: WeakSet[Waker] = WeakSet()


def _after_fork() -> None:
    for waker in list(_wakers):
        waker.forget()


os.register_at_fork(after_in_child=_after_fork)
