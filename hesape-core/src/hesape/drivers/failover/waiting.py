"""Waiting in several stores at once (W1)."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from hesape.errors import HesapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.drivers.failover.member import Member

SLICE_S: Final = 0.25
"""How long one wait in a store takes at most: so long its thread outlasts the last one who waits."""
_KEPT: Final = 100


class _Watch:
    """Those who wait for the same queues, and one thread a member that waits for them."""

    def __init__(self, queues: tuple[str, ...]) -> None:
        self.queues = queues
        self.waiting = 0
        self._woken = 0
        self._changed = threading.Condition()
        self._threads: dict[Member, threading.Thread] = {}

    def wait(self, members: Sequence[Member], timeout_s: float) -> bool:
        until = monotonic() + timeout_s
        with self._changed:
            before = self._woken
            self.waiting += 1
            try:
                while self._woken == before and (left := until - monotonic()) > 0:
                    self._watch(members)
                    self._changed.wait(min(left, SLICE_S))
                return self._woken != before
            finally:
                self.waiting -= 1

    def _watch(self, members: Sequence[Member]) -> None:
        for member in members:
            thread = self._threads.get(member)
            if thread is None or not thread.is_alive():
                thread = threading.Thread(target=self._in_one, args=(member,), name="hesape-wait", daemon=True)
                self._threads[member] = thread
                thread.start()

    def _in_one(self, member: Member) -> None:
        """Wait in one store for as long as anybody waits; a wait is a hint, so errors only end it."""
        woken = False
        try:
            while self.waiting and not woken:
                woken = member.driver.wait(self.queues, SLICE_S)
        except HesapeError:
            return
        if woken:
            with self._changed:
                self._woken += 1
                self._changed.notify_all()


class Waits:
    """Everybody who waits, by the queues that they wait for."""

    def __init__(self) -> None:
        """Wait nowhere."""
        self._watches: dict[tuple[str, ...], _Watch] = {}

    def wait(self, members: Sequence[Member], queues: Sequence[str], timeout_s: float) -> bool:
        """Wait until one of them may have something, at most `timeout_s`; whether it has."""
        wanted = tuple(queues)
        watch = self._watches.get(wanted)
        if watch is None:
            if len(self._watches) >= _KEPT:
                self._watches = {known: found for known, found in list(self._watches.items()) if found.waiting}
            watch = self._watches.setdefault(wanted, _Watch(wanted))
        return watch.wait(members, timeout_s)
