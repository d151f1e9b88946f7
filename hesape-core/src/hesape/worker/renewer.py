"""The supervisor's talk with the store: beats for its processes, an end for the dead, a look after others' workers."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from hesape import times
from hesape.attributes import Attributes
from hesape.driver import NOBODYS_QUEUE
from hesape.errors import HesapeError, JobTimeoutError, LeaseLostError, StoreError
from hesape.jobs import attached
from hesape.records import Claim
from hesape.worker.bell import Bell
from hesape.worker.lifeline import TTL_S, interval_s
from hesape.worker.outage import LONGEST_PAUSE_S, Outage
from hesape.worker.outcome import Park, Standing, after_error, limits_of
from hesape.worker.restart import RestartSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.handlers import Registry
    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape.records import Key
    from hesape.worker.options import WorkerOptions
    from hesape.worker.process import Process

logger = logging.getLogger("hesape.worker")

RESCUE_S: Final = 1.0
_LATE_S: Final = TTL_S / 2
"""After so long without a beat the store was away, perhaps for others too: all beat before anybody is called dead."""
_AGAIN_S: Final = 2.0
"""When a dead worker is retired once more: a claim that it sent just before may have been executed just after."""


class Renewer:
    """A thread, so that a store that is slow to answer holds up no signal."""

    def __init__(
        self, queue: Queue, registry: Registry, options: WorkerOptions, processes: Callable[[], list[Process]]
    ) -> None:
        """Beat for `processes()`."""
        self._queue = queue
        self._driver = queue.driver
        self._registry = registry
        self._options = options
        self._processes = processes
        self._interval_s = interval_s(options.lease_s)
        self._outage = Outage(f"supervisor on connection {queue.name}")
        self._restart = RestartSignal(queue.driver)
        self.restart_asked = False
        """Whether somebody asked the connection's workers to start anew; whoever acts on it resets it."""
        self._beaten_at = monotonic()
        self._rescue_from = 0.0
        """Before this monotonic time others aren't called dead."""
        self._dead: list[tuple[float, Process]] = []
        self._bell = Bell()
        self._closing = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="renewer", daemon=True)
        self._rescuer = threading.Thread(target=self._rescue, name="rescuer", daemon=True)

    def register(self, process: Process) -> None:
        """Announce a worker before its process starts. A `StoreError` while the store is away."""
        self._driver.beat(process.worker, times.delay_us(TTL_S), times.delay_us(self._options.lease_s), ())
        self._restart.given()

    def start(self) -> None:
        """Begin to beat, and to look after the workers of others."""
        self._thread.start()
        self._rescuer.start()

    def bury(self, process: Process) -> None:
        """A process is dead for certain: what it held runs elsewhere at once."""
        self._dead.append((0.0, process))
        self._bell.ring()

    def close(self, patience_s: float) -> None:
        """Bury those who are still to be buried, if the store lets us, and end."""
        self._closing = True
        self._over.set()
        self._bell.ring()
        self._thread.join(patience_s)

    def _rescue(self) -> None:
        """A thread of its own: a store may look twice, and our own leases don't wait for that."""
        while not self._over.wait(RESCUE_S):
            if monotonic() < self._rescue_from or monotonic() - self._beaten_at > _LATE_S:
                continue
            try:
                freed = self._driver.rescue()
            except StoreError:
                continue  # the beats say that it is away
            except Exception:
                logger.exception("supervisor: looking after dead workers failed")
                continue
            if freed:
                logger.warning("%d jobs of dead workers are due again", freed)

    def _work(self) -> None:
        next_beat = 0.0
        while True:
            try:
                self._bury_dead(last=self._closing)
                if monotonic() >= next_beat and not self._closing:
                    next_beat = monotonic() + self._interval_s
                    self._beat_all()
                    self._beaten()
            except StoreError as error:
                self._outage.failed(error)
            except Exception:  # whatever it is, the next beat comes
                logger.exception("supervisor: a beat failed")
            if self._closing and not self._dead:
                return
            self._bell.lie_down()
            if any(not due for due, _ in self._dead) and not self._outage.away:
                self._bell.stay_up()
                continue
            self._bell.sleep(min(max(next_beat - monotonic(), 0.02), self._interval_s))

    def _beaten(self) -> None:
        now = monotonic()
        if now - self._beaten_at > _LATE_S:
            self._rescue_from = now + LONGEST_PAUSE_S + self._interval_s
        self._beaten_at = now
        self._outage.answered()

    def _beat_all(self) -> None:
        error: StoreError | None = None
        for process in self._processes():
            error = self._beat(process) or error
        if error is not None:
            raise error
        self.restart_asked = self._restart.given() or self.restart_asked

    def _beat(self, process: Process) -> StoreError | None:
        """Renew one worker, and tell it; a line also comes when nothing was renewed, as a sign of life."""
        began = monotonic()
        if not process.fit(began):
            return None
        ttl_us, lease_us = times.delay_us(TTL_S), times.delay_us(self._options.lease_s)
        try:
            paused = self._driver.beat(process.worker, ttl_us, lease_us, process.but)
        except StoreError as error:
            process.control.send()
            return error
        process.control.send(renewed=began, paused=sorted(paused))
        return None

    # The dead.

    def _bury_dead(self, *, last: bool) -> None:
        now = monotonic()
        for entry in [entry for entry in self._dead if last or entry[0] <= now]:
            due, process = entry
            if not due:
                for key in process.culprits:
                    self._count_timeout(process, key)
            freed = self._driver.retire(process.worker)
            if freed:
                logger.warning("worker %s is gone: %d jobs that it held are due again", process.worker, freed)
            self._dead.remove(entry)
            if not due and not last:
                self._dead.append((now + _AGAIN_S, process))

    def _count_timeout(self, process: Process, key: Key) -> None:
        """Settle a delivery whose handler held the interpreter past its timeout, in its process's stead.

        A claim repeated under its token answers with what is reserved under it; if nothing is, this one finds nothing.
        """
        lease_us = times.delay_us(self._options.lease_s)
        claim = Claim((NOBODYS_QUEUE,), 1, lease_us, key.token, process.worker, repeat=True)
        began = monotonic()
        claimed = self._driver.reserve(claim)
        for job in self._queue.receive(claimed, claim, began):
            if job.id == key.id:
                try:
                    self._fail(job, claimed.now_us)
                except LeaseLostError as lost:
                    logger.warning("job %s (%s): %s; another delivery decides", job.id, job.name, lost)

    def _fail(self, job: Job, now_us: int) -> None:
        try:
            registered = self._registry.find(job.name).attributes
        except HesapeError:
            registered = Attributes()
        attributes = job.attributes.over(registered)
        until = job.retry_until or attributes.retry_until
        limits = limits_of(attributes, self._options, None if until is None else times.to_us(until))
        standing = Standing(job.attempts, job.exceptions, attached(job).lapses, job.last_error, now_us)
        timeout_s = limits.timeout_s
        error = JobTimeoutError(f"the handler ran longer than its timeout of {timeout_s:g} s, and cost its process")
        decision = after_error(standing, limits, error, timed_out=True)
        job.exceptions += 1
        if isinstance(decision, Park):
            job.fail(error)
        else:
            job.last_error = f"{type(error).__name__}: {error}"
            job.release(decision.delay_s)
        logger.error("job %s (%s) ran past its timeout of %g s and cost its process", job.id, job.name, timeout_s)
