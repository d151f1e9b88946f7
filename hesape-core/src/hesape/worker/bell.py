"""Wakes one sleeping thread, at the cost of a look at a flag while it is awake."""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Bell:
    """What a thread sleeps by. Whoever has something for it says so first, and rings then.

    The sleeper says that it sleeps before it looks for the last time whether there is something to do; so a ring
    between its look and its sleep isn't lost. A ring may be left over from the sleep before, and wakes once too often.
    """

    def __init__(self) -> None:
        """Begin awake."""
        self.asleep = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Wake the sleeper, if it sleeps. From any thread, and from a signal handler."""
        if self.asleep:
            self.asleep = False
            self._rings.put(None)

    def lie_down(self) -> None:
        """Say that one sleeps from now on; look once more for work, then call `sleep` or `stay_up`."""
        self.asleep = True

    def stay_up(self) -> None:
        """There was something to do after all."""
        self.asleep = False

    def sleep(self, timeout_s: float) -> None:
        """Wait for a ring, at most this long."""
        with suppress(Empty):
            self._rings.get(timeout=max(timeout_s, 0.0))
        self.asleep = False
