"""How many jobs a worker holds ready: as many as their duration makes worthwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hesape.worker.slots import Crew

AHEAD_S: Final = 0.02
"""For how long the jobs held ready should last: some round trips to a store, and nothing that another worker misses."""
DEEPEST: Final = 500
STALLED_S: Final = 1.0
"""When every slot has run its job for this long, what is held ready goes back: another worker may be free."""
_FRESH: Final = 0.5


class Prefetch:
    """Learns how long jobs take: deep for jobs of a millisecond, none for jobs of a second."""

    def __init__(self, crew: Crew, fixed: int | None, most_at_once: int) -> None:
        """Hold `fixed` jobs ready if it is given; claim at most `most_at_once` together if that isn't 0."""
        self._crew = crew
        self._fixed = fixed
        self._most = most_at_once or DEEPEST
        self._done = 0
        self._busy_s = 0.0
        self._mean_s: float | None = None

    def depth(self, now: float) -> int:
        """How many jobs to hold beside the running ones."""
        if self._fixed is not None:
            return self._fixed
        self._learn()
        mean_s = self._mean_s
        if mean_s is None:
            return 0
        mean_s = max(mean_s, self._all_busy_s(now))
        if mean_s <= 0:
            return self._most
        return min(int(len(self._crew.slots) * AHEAD_S / mean_s), self._most)

    def stalled(self, now: float) -> bool:
        """Whether what is held ready had better go back."""
        return self._fixed is None and self._crew.waiting > 0 and self._all_busy_s(now) > STALLED_S

    def _learn(self) -> None:
        done, busy_s = self._crew.done, self._crew.busy_s
        if done > self._done:
            mean_s = (busy_s - self._busy_s) / (done - self._done)
            self._mean_s = mean_s if self._mean_s is None else _FRESH * mean_s + (1 - _FRESH) * self._mean_s
            self._done, self._busy_s = done, busy_s

    def _all_busy_s(self, now: float) -> float:
        """For how long every slot has been busy with the job that it runs; 0 when one is free."""
        ages = [now - slot.began for slot in self._crew.slots if slot.job is not None]
        return min(ages) if len(ages) == len(self._crew.slots) else 0.0
