"""The store away: one log line a change of state, and a pause that grows to a bound (E1)."""

from __future__ import annotations

import logging
import random
from time import monotonic
from typing import Final

from hesape.errors import StoreBusyError

logger = logging.getLogger("hesape.worker")

LONGEST_PAUSE_S: Final = 2.0
"""The longest that a store which is back isn't asked."""
_FIRST_PAUSE_S: Final = 0.02
_BUSY: Final = 20
"""So many conflicts in a row are usual under load; more are worth a line."""


class Outage:
    """Whether a store answers, and when it is asked again when it doesn't."""

    def __init__(self, what: str) -> None:
        """Say `what` in the log."""
        self._what = what
        self._failures = 0
        self._since = 0.0
        self._told = False
        self.until = 0.0
        """Before this monotonic time it isn't asked."""

    @property
    def away(self) -> bool:
        """Whether the last call had no answer."""
        return self._failures > 0

    def failed(self, error: BaseException) -> None:
        """A call failed."""
        now = monotonic()
        if not self._failures:
            self._since = now
        self._failures += 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(self._failures - 1, 20), LONGEST_PAUSE_S)
        self.until = now + pause_s * random.uniform(0.5, 1)
        if not self._told and (self._failures > _BUSY or not isinstance(error, StoreBusyError)):
            self._told = True
            said = (self._what, type(error).__name__, error, LONGEST_PAUSE_S)
            logger.warning("%s: the store doesn't take it: %s: %s; asking again, at least every %g s", *said)

    def answered(self) -> None:
        """A call had its answer."""
        if self._failures:
            if self._told:
                logger.warning("%s: the store is back after %.1f s", self._what, monotonic() - self._since)
            self._failures, self._told, self.until = 0, False, 0.0
