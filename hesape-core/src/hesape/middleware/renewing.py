"""Renews the locks of running jobs: one thread a process, which sleeps while there is nothing to renew."""

from __future__ import annotations

import logging
import math
import os
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from hesape.coordination import Lock
from hesape.errors import HesapeError

if TYPE_CHECKING:
    from hesape.driver import Driver
    from hesape.jobs import Delivery

logger = logging.getLogger(__name__)

_SHARE: Final = 3
"""A lock is renewed when a third of its time is over: two attempts may fail."""
_MARGIN_S: Final = 0.1
"""How much sooner than the lease a lock ends: a call to the store takes time."""
_LEAST_S: Final = 0.02


def time_for_lock(delivery: Delivery) -> float:
    """Seconds for which a lock taken now may live: what is left of the lease, and a little less."""
    left = delivery.expires - monotonic()
    return left - min(_MARGIN_S, left / 10)


class Held:
    """A lock, and the delivery whose lease bounds it."""

    def __init__(self, driver: Driver, key: str, delivery: Delivery) -> None:
        """Not yet taken. The owner is the job: its redelivery re-enters (K1)."""
        self._driver = driver
        self._key = key
        self.delivery = delivery
        self.due = math.inf
        """When it is renewed next, by the monotonic clock."""
        self.over = False
        self.guard = threading.Lock()
        """Held while it is renewed, so that nobody frees it in between."""

    def take(self, ttl_s: float) -> bool:
        """Take or renew it; whether the job holds it."""
        return Lock(self._driver, self._key, ttl_s, self.delivery.id).take()

    def free(self) -> None:
        """Free it, if the job holds it."""
        Lock(self._driver, self._key, 1, self.delivery.id).free()

    def next_due(self, now: float) -> float:
        """When to renew it next."""
        return now + max((self.delivery.expires - now) / _SHARE, _LEAST_S)


class Renewer:
    """The thread, and what it renews."""

    def __init__(self) -> None:
        """Start when there is something to do."""
        self._held: dict[int, Held] = {}
        self._bell = threading.Event()
        self._wakes_at = -math.inf
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, held: Held) -> None:
        """Renew this one until `remove`."""
        held.due = held.next_due(monotonic())
        self._held[id(held)] = held
        if self._thread is None:
            self._start()
        if held.due < self._wakes_at:
            self._bell.set()

    def remove(self, held: Held) -> None:
        """Renew it no more; once this returns, no renewal is under way."""
        held.over = True
        self._held.pop(id(held), None)
        with held.guard:
            pass

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="hesape-locks", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            self._wakes_at = -math.inf
            now = monotonic()
            for held in list(self._held.values()):
                if held.due <= now:
                    self._renew(held)
            # Whoever adds from here on sees this first, and rings.
            self._wakes_at = math.inf
            self._wakes_at = wake = min([held.due for held in list(self._held.values())], default=math.inf)
            self._bell.wait(None if wake == math.inf else max(wake - monotonic(), 0.0))
            self._bell.clear()

    def _renew(self, held: Held) -> None:
        with held.guard:
            now = monotonic()
            held.due = held.next_due(now)
            left = time_for_lock(held.delivery)
            if held.over:
                return
            if left <= 0:  # the lease isn't renewed any more, and neither is what follows it
                self._held.pop(id(held), None)
                return
            try:
                if not held.take(left):
                    logger.warning("the lock of job %s was lost: another job may run beside it", held.delivery.id)
            except HesapeError as error:
                logger.warning("the lock of job %s couldn't be renewed: %s", held.delivery.id, error)


_renewer = Renewer()


def renew(held: Held) -> None:
    """Renew a lock for as long as its job's lease, until `let_go`."""
    _renewer.add(held)


def let_go(held: Held) -> None:
    """Renew it no more."""
    if held.due != math.inf and not held.over:
        _renewer.remove(held)


def _after_fork() -> None:
    global _renewer  # noqa: PLW0603 - the thread didn't come along
    _renewer = Renewer()


os.register_at_fork(after_in_child=_after_fork)
