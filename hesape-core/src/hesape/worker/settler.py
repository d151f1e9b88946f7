"""Finished deliveries on their way out: deleted in groups, with the next claim or on their own (S3, S5)."""

from __future__ import annotations

import logging
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from hesape.records import Key
from hesape.retry import may_be_written

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hesape.driver import Driver
    from hesape.jobs import Delivery, Job
    from hesape.worker.reports import Reports

logger = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 1_000
"""How many deliveries one call deletes."""


class Clock:
    """The store's clock as of the last claim, carried on by the machine's monotonic one (T2)."""

    def __init__(self) -> None:
        """Be unset until a store has answered."""
        self._ahead_us = 0

    def set(self, now_us: int, at: float) -> None:
        """The store's now was `now_us` at the monotonic time `at`."""
        self._ahead_us = now_us - round(at * 1_000_000)

    def now_us(self) -> int:
        """The store's now, in microseconds since the epoch."""
        return self._ahead_us + int(monotonic() * 1_000_000)


class Finished(NamedTuple):
    """A delivery whose work is done and whose row is still there."""

    key: Key
    job: Job
    delivery: Delivery
    duration_s: float


class Settler:
    """Collects what slots finished; the fetcher's thread sends it."""

    def __init__(self, driver: Driver, reports: Reports) -> None:
        """Settle through `driver`."""
        self.driver = driver
        self._reports = reports
        self._finished: deque[Finished] = deque()
        self._unanswered: list[Finished] = []
        self._left: deque[tuple[Job, Delivery]] = deque()
        self.repeats = False
        """Whether an earlier deletion of what waits may have been executed: what is absent counts as deleted (S5)."""
        self.but: tuple[str, ...] = ()
        """Ids of jobs that were left to their lease, which isn't renewed (S7)."""

    # From the slots' threads.

    def finished(self, job: Job, delivery: Delivery, duration_s: float) -> None:
        """A delivery's work is done: delete it soon."""
        self._finished.append(Finished(Key(delivery.id, delivery.token), job, delivery, duration_s))

    def leave(self, job: Job, delivery: Delivery) -> None:
        """A delivery was settled in a transaction that may still be open, or couldn't be: its lease's end decides."""
        self._left.append((job, delivery))

    # From the fetcher's thread.

    @property
    def waiting(self) -> bool:
        """Whether anything is to be deleted."""
        return bool(self._finished or self._unanswered)

    def take(self) -> list[Finished]:
        """What is to be deleted next; give it to `answered`, or to `take_back`."""
        batch, self._unanswered = self._unanswered, []
        while self._finished and len(batch) < MOST_AT_ONCE:
            batch.append(self._finished.popleft())
        return batch

    def take_back(self, batch: Iterable[Finished]) -> None:
        """Surely nothing was deleted of these."""
        self._unanswered = [*batch, *self._unanswered]

    def answered(self, batch: list[Finished], lost: list[Key]) -> None:
        """The store has deleted `batch`, but for those `lost`."""
        self.repeats = False
        gone = set(lost)
        for key, job, delivery, duration_s in batch:
            if gone and key in gone:
                self._reports.lost(job, duration_s)
                continue
            delivery.kind = "delete"
            if job.has_failed:
                self._reports.marked(job, duration_s)
            else:
                self._reports.processed(job, duration_s)

    def delete(self) -> None:
        """Send what waits. When the store can't take it, it waits on, and the error is raised."""
        while batch := self.take():
            keys = [finished.key for finished in batch]
            try:
                lost = self.driver._delete(keys, repeat=self.repeats, tx=None)  # noqa: SLF001 - core repeats it itself
            except BaseException as error:
                self.repeats = self.repeats or may_be_written(error)
                self.take_back(batch)
                raise
            self.answered(batch, lost)

    def look_after_left(self) -> None:
        """Find out which deliveries that were left are over; the others keep their lease from being renewed."""
        waiting = []
        while self._left:
            waiting.append(self._left.popleft())
        if waiting:
            try:
                deadlines = self.driver._extend([Key(one.id, one.token) for _, one in waiting], 0)  # noqa: SLF001
            except Exception as error:  # noqa: BLE001 - a fault of the driver, too; the next look may succeed
                logger.debug("deliveries that were left to their lease couldn't be looked at: %s", error)
                deadlines = [0 for _ in waiting]
            waiting = [one for one, deadline in zip(waiting, deadlines, strict=True) if deadline is not None]
        self._left.extend(waiting)
        self.but = tuple(delivery.id for _, delivery in waiting)
