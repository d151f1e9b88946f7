"""Waiting for work: what this process stores wakes at once, what others store is seen by a cheap look (W1).

MySQL can't notify. The look is one statement of index dives that touches no row; at the default pace it costs an idle
worker well under one hundredth of a core and finds a job some ten milliseconds after its commit.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Final
from weakref import WeakSet

_FIRST_LOOK_S: Final = 0.002
"""The first look comes soon, since the claim before found nothing a moment ago; later ones back off to the pace."""


class Waker:
    """The waiters of one driver."""

    def __init__(self, pace_s: float) -> None:
        """Look every `pace_s`."""
        self._pace_s = pace_s
        self._changed = threading.Condition()
        self._stored: Counter[str] = Counter()
        _wakers.add(self)

    def stored(self, queues: Iterable[str]) -> None:
        """Wake who waits for one of these queues."""
        with self._changed:
            self._stored.update(queues)
            self._changed.notify_all()

    def wait(self, queues: Sequence[str], timeout_s: float, look: Callable[[], bool]) -> bool:
        """Block until a job of these queues may be due, at most `timeout_s`; whether it was woken."""
        deadline = monotonic() + timeout_s
        seen = self._seen(queues)
        pause = min(_FIRST_LOOK_S, self._pace_s)
        while True:
            left = deadline - monotonic()
            with self._changed:
                if self._changed.wait_for(lambda: self._seen(queues) != seen, max(0.0, min(pause, left))):
                    return True
            if look():
                return True
            if left <= pause:
                return False
            pause = min(2 * pause, self._pace_s)

    def _seen(self, queues: Sequence[str]) -> list[int]:
        return [self._stored[queue] for queue in queues]

    def forget(self) -> None:
        """Begin with a lock of one's own in a forked child, where nobody waits."""
        self._changed = threading.Condition()


_wakers: WeakSet[Waker] = WeakSet()


def _after_fork() -> None:
    for waker in list(_wakers):
        waker.forget()


os.register_at_fork(after_in_child=_after_fork)
