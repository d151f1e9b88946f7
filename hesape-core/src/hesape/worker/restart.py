"""Asking the workers of a connection, wherever they run, to start anew."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from hesape import retry
from hesape.errors import HesapeError
from hesape.jobs import stored_key

if TYPE_CHECKING:
    from hesape.driver import Driver

_KEY: Final = stored_key("restart", "workers")


def request_restart(driver: Driver) -> None:
    """Have every worker of the connection finish what it runs and start anew; those that start later aren't meant."""
    stamp = secrets.token_hex(8)
    retry.insist(lambda _: driver.write_flag(_KEY, stamp, None))


class RestartSignal:
    """Tells a request that was made since this was first looked at."""

    def __init__(self, driver: Driver) -> None:
        """Look in `driver`."""
        self._driver = driver
        self._known = False
        self._stamp: str | None = None

    def given(self) -> bool:
        """Whether a restart was requested since the first look that had an answer; a store that is away says no."""
        try:
            stamp = self._driver.read_flag(_KEY)
        except HesapeError:
            return False
        before, known = self._stamp, self._known
        self._stamp, self._known = stamp, True
        return known and stamp != before
