"""The one thread of a worker process that claims and deletes: it keeps the slots full and waits for none of them."""

from __future__ import annotations

import logging
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from hesape import times
from hesape.errors import ConfigError, DriverError, SchemaError, StoreError
from hesape.records import Claim, Key, new_token
from hesape.retry import may_be_written
from hesape.worker.options import QueueOrder
from hesape.worker.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape.records import Claimed
    from hesape.worker.bell import Bell
    from hesape.worker.options import WorkerOptions
    from hesape.worker.prefetch import Prefetch
    from hesape.worker.reports import Reports
    from hesape.worker.settler import Clock, Finished, Settler
    from hesape.worker.slots import Crew
    from hesape.worker.waiter import Waiter

logger = logging.getLogger(__name__)

GROUP_S: Final = 0.004
"""How long a finished delivery waits for others, or for the next claim, before it is deleted."""
TICK_S: Final = 0.5
"""How long the thread sleeps at most: so often it looks at its limits."""


class Fetcher:
    """Claims when there is room, lets what is finished ride along, and sleeps by a bell that everybody rings."""

    def __init__(
        self,
        queue: Queue,
        options: WorkerOptions,
        worker: str,
        *,
        crew: Crew,
        settler: Settler,
        prefetch: Prefetch,
        order: QueueOrder,
        waiter: Waiter,
        bell: Bell,
        clock: Clock,
        reports: Reports,
        vouched: Callable[[], bool],
    ) -> None:
        """Fetch from `queue` under the name of `worker`, while the store is known to know that it lives."""
        self._queue = queue
        self._options = options
        self._worker = worker
        self._crew = crew
        self._settler = settler
        self._prefetch = prefetch
        self._waiter = waiter
        self._bell = bell
        self._clock = clock
        self._reports = reports
        self._vouched = vouched
        self._order = order
        self._lease_us = times.delay_us(options.lease_s)
        self.outage = Outage(f"connection {queue.name}")
        self.on_hold = False
        """USR1: nothing is claimed."""
        self.closing = False
        """Nothing is claimed any more."""
        self.paused: frozenset[str] = frozenset()
        """The paused queues, as the last claim or beat said."""
        self._heeded: frozenset[str] = frozenset()
        self.taken = 0
        """Jobs claimed and not handed back."""
        self.found_fewer = False
        """Whether the last claim had an answer, and it was fewer jobs than were asked for."""
        self._claim: Claim | None = None
        self._batch: list[Finished] = []
        self._asked_at = 0.0
        self._returning: list[Job] = []
        self._look_at = 0.0
        self._delete_at = 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is under way between slots and store."""
        return not (self._claim or self._returning or self._settler.waiting or self._crew.held)

    def turn(self) -> None:
        """Do the next thing: hand back, claim, delete, or sleep until there is something to do."""
        now = monotonic()
        if now < self.outage.until:
            self._sleep(self.outage.until - now, now)
            return
        try:
            if not self._step(now):
                self._rest(now)
        except (SchemaError, ConfigError, DriverError):
            raise
        except StoreError as error:
            self.outage.failed(error)
        except Exception as error:  # a fault of a driver is no reason to drop what runs
            if not self.outage.away:
                logger.exception("connection %s: the driver failed", self._queue.name)
            self.outage.failed(error)

    def _step(self, now: float) -> bool:
        """Do one thing with the store; whether there was one."""
        if self.paused != self._heeded:
            self._heeded = self.paused
            self._returning += self._crew.take_back(self._heeded)
        if self._prefetch.stalled(now):
            self._returning += self._crew.take_back()
            self._look_at = now + TICK_S
        if self._returning:
            self._hand_back()
        elif self._claim is not None:
            self._send(self._claim)
        elif (room := self._room(now)) > 0:
            self._ask(room)
        elif self._settler.waiting and self._group_is_over(now):
            self._settler.delete()
            self.outage.answered()
            self._delete_at = 0.0
        else:
            return False
        return True

    # Claiming.

    def _room(self, now: float) -> int:
        """How many jobs to claim now; 0 while enough are held or nothing can be due."""
        if self.on_hold or self.closing or not self._vouched():
            return 0
        if self._waiter.woken:
            self._waiter.woken = False
            self._look_at = 0.0
        if now < self._look_at:
            return 0
        return self._wanted(now)

    def _wanted(self, now: float) -> int:
        size, held = len(self._crew.slots), self._crew.held
        depth = self._prefetch.depth(now)
        if held > size + depth // 2:
            return 0
        wanted = size + depth - held
        if self._options.last_job:
            wanted = min(wanted, self._options.last_job - self.taken)
        return min(wanted, self._order.most_at_once or wanted)

    def _ask(self, n: int) -> None:
        self._reports.looping()
        self._batch = self._settler.take()
        done = tuple([finished.key for finished in self._batch])
        repeat = self._settler.repeats
        self._claim = Claim(self._order.next(), n, self._lease_us, new_token(), self._worker, done, repeat)
        self._asked_at = monotonic()
        self._send(self._claim)

    def _send(self, claim: Claim) -> None:
        """Send a claim. While it has no answer it is kept, and sent again under the same token (L4)."""
        try:
            claimed = self._queue.driver.reserve(claim)
        except BaseException as error:
            if may_be_written(error):
                self._claim = claim._replace(repeat=True)
            raise
        self.outage.answered()
        self._settler.answered(self._batch, claimed.lost)
        self._batch, self._delete_at = [], 0.0
        self._claim = claim._replace(done=(), repeat=True)  # should a record that can't be read fail to be parked
        jobs = self._queue.receive(claimed, claim, self._asked_at)
        self._claim = None
        self._hand_over(claim, claimed, jobs)

    def _hand_over(self, claim: Claim, claimed: Claimed, jobs: list[Job]) -> None:
        now = monotonic()
        self._clock.set(claimed.now_us, now)
        self.paused = claimed.paused
        self.found_fewer = len(claimed.rows) < claim.n
        self._waiter.found(bool(claimed.rows))
        self.taken += len(jobs)
        self._reports.popped(jobs)
        self._crew.put(jobs)
        if self.closing:
            self._returning += self._crew.take_back()
        if not self.found_fewer:
            self._look_at = 0.0
            return
        wait_s = self._options.sleep_s
        if claimed.next_due_us is not None:
            wait_s = min(wait_s, max((claimed.next_due_us - claimed.now_us) / 1_000_000, 0.001))
        self._look_at = now + wait_s

    def _hand_back(self) -> None:
        """Put back jobs that didn't start, with their attempt and their place (L8)."""
        jobs = self._returning
        keys = [Key(record.job.id, record.token) for record in (job.record() for job in jobs)]
        self._queue.driver._hand_back(keys)  # noqa: SLF001 - repeated here, until there is an answer
        self.outage.answered()
        self._returning = []
        self.taken -= len(jobs)

    def close(self) -> None:
        """Claim no more: what hasn't started goes back, what is finished is still deleted."""
        self.closing = True
        self._returning += self._crew.take_back()
        if self._claim is not None and not self._claim.repeat:  # surely nothing was claimed
            self._settler.take_back(self._batch)
            self._claim, self._batch = None, []

    # Sleeping.

    def _group_is_over(self, now: float) -> bool:
        if not self._delete_at:
            self._delete_at = now + GROUP_S
        return now >= self._delete_at

    def _rest(self, now: float) -> None:
        if self._settler.waiting:
            sleep(max(self._delete_at - now, 0.0))
            return
        wait_s = TICK_S
        if not self.on_hold and not self.closing and now < self._look_at and self._wanted(now) > 0:
            left = self._look_at - now
            wait_s = min(wait_s, left)
            queues = [queue for queue in self._options.queues if queue not in self.paused]
            if queues:
                self._waiter.watch(queues, left)
        self._sleep(wait_s, now)

    def _sleep(self, wait_s: float, now: float) -> None:
        """Sleep until somebody rings; nothing that came just before is slept through."""
        self._bell.lie_down()
        if now >= self.outage.until and self._settler.waiting:
            self._bell.stay_up()
        else:
            self._bell.sleep(wait_s)
