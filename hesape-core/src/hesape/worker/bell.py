"""Wakes one sleeping thread, at the cost of a look at a flag while it is awake."""

from __future__ import annotations

from contextlib import suppress
from threading import Lock


class Bell:
    """What a thread sleeps by. Whoever has something for it says so first, and rings then.

    The sleeper says that it sleeps before it looks for the last time whether there is something to do; so a ring
    between its look and its sleep isn't lost. A ring may be left over from the sleep before, and wakes once too often.

    It is a lock, not a `SimpleQueue`: before Python 3.13 a signal that comes when the time of its `get` is over, as
    when a stopped process goes on, makes it wait for ever.
    """

    def __init__(self) -> None:
        """Begin awake."""
        self.asleep = False
        self._silence = Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake the sleeper, if it sleeps. From any thread, and from a signal handler."""
        if self.asleep:
            self.asleep = False
            with suppress(RuntimeError):  # somebody else rang
                self._silence.release()

    def lie_down(self) -> None:
        """Say that one sleeps from now on; look once more for work, then call `sleep` or `stay_up`."""
        self.asleep = True

    def stay_up(self) -> None:
        """There was something to do after all."""
        self.asleep = False

    def sleep(self, timeout_s: float) -> None:
        """Wait for a ring, at most this long."""
        self._silence.acquire(timeout=max(timeout_s, 0.0))
        self.asleep = False
