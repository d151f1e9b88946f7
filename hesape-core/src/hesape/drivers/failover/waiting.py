"""Waiting in several stores at once (W1)."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from hesape.errors import HesapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.drivers.failover.member import Member


class Waits:
    """One thread a member at most; one that outlasts the call it was started for serves the next."""

    def __init__(self) -> None:
        """Wait nowhere."""
        self._threads: dict[Member, threading.Thread] = {}
        self._woken = threading.Event()

    def wait(self, members: Sequence[Member], queues: Sequence[str], timeout_s: float) -> bool:
        """Wait until one of them may have something, at most `timeout_s`; whether it has."""
        until = monotonic() + timeout_s
        while not self._woken.is_set() and (left := until - monotonic()) > 0:
            for member in members:
                thread = self._threads.get(member)
                if thread is None or not thread.is_alive():
                    thread = threading.Thread(target=self._in_one, args=(member, queues, left), daemon=True)
                    self._threads[member] = thread
                    thread.start()
            self._woken.wait(left)
        woken = self._woken.is_set()
        self._woken.clear()
        return woken

    def _in_one(self, member: Member, queues: Sequence[str], timeout_s: float) -> None:
        try:
            if member.driver.wait(queues, timeout_s):
                self._woken.set()
        except HesapeError:  # a wait is a hint; the claim that follows says what is wrong
            return
