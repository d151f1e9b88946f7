"""Waits in the store for the fetcher, so that the fetcher can be woken by everybody else too (W1)."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from hesape.errors import HesapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.driver import Driver
    from hesape.worker.bell import Bell

_SLICE_S: Final = 0.25
"""How long one wait in the store takes at most: so soon the thread notices that nobody needs it any more."""
_AT_ONCE_S: Final = 0.005
"""A wait that ended sooner was none."""


class Waiter:
    """A thread that blocks in `Driver.wait` on request and rings when it was woken."""

    def __init__(self, driver: Driver, bell: Bell) -> None:
        """Wait in `driver`, ring `bell`."""
        self._driver = driver
        self._bell = bell
        self._wanted: SimpleQueue[tuple[tuple[str, ...], float] | None] = SimpleQueue()
        self._fruitless = 0
        self._closing = False
        self.watching = False
        self.woken = False
        """Something may have become due; whoever looks resets it."""
        self._thread = threading.Thread(target=self._work, name="waiter", daemon=True)
        self._thread.start()

    def watch(self, queues: Sequence[str], timeout_s: float) -> None:
        """Begin to wait, unless it waits already."""
        if not self.watching:
            self.watching = True
            self._wanted.put((tuple(queues), timeout_s))

    def found(self, any_job: bool) -> None:  # noqa: FBT001 - it is what a claim found
        """Learn whether a claim found something: a store that wakes for nothing is listened to less often."""
        if any_job:
            self._fruitless = 0

    def close(self) -> None:
        """Stop waiting, within a moment; nobody waits for that."""
        self._closing = True
        self._wanted.put(None)

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            woken = self._wait(*wanted)
            self.watching = False
            self.woken = self.woken or woken
            self._bell.ring()

    def _wait(self, queues: tuple[str, ...], timeout_s: float) -> bool:
        began = monotonic()
        until = began + timeout_s
        woken = False
        while not woken and not self._closing and (left := until - monotonic()) > 0:
            try:
                woken = self._driver.wait(queues, min(left, _SLICE_S))
            except HesapeError:  # the claim that follows says what is wrong with the store
                sleep(min(left, _SLICE_S))
        if monotonic() - began < _AT_ONCE_S:
            self._fruitless += 1
            sleep(min(timeout_s, _AT_ONCE_S * 2 ** min(self._fruitless, 10) / 2))
        else:
            self._fruitless = 0
        return woken
