"""One worker process: what it is made of, when it stops, and how it leaves."""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Sequence
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from hesape.errors import HesapeError, JobTimeoutError
from hesape.worker.bell import Bell
from hesape.worker.board import Board
from hesape.worker.coroutines import Coroutines
from hesape.worker.fetcher import TICK_S, Fetcher
from hesape.worker.lifeline import Lifeline
from hesape.worker.options import QueueOrder
from hesape.worker.prefetch import Prefetch
from hesape.worker.reports import Reports
from hesape.worker.runner import Runner
from hesape.worker.settler import Clock, Settler
from hesape.worker.slots import Crew, Slot
from hesape.worker.timeouts import Watcher
from hesape.worker.waiter import Waiter

if TYPE_CHECKING:
    from hesape.handlers import Middleware, Registry
    from hesape.queue import Queue
    from hesape.worker.control import Control
    from hesape.worker.options import WorkerOptions

logger = logging.getLogger("hesape.worker")

MEMORY_STATUS: Final = 12
STUCK_STATUS: Final = 75
"""The exit code of a process that a handler doesn't let go of; its supervisor starts another."""
_PARTING_S: Final = 2.0
"""How long a leaving process tries to settle what it couldn't finish."""
_MIB: Final = 1024 * 1024


class Reason(StrEnum):
    """Why a worker process stops, in the order in which the reasons are looked at."""

    ASKED = "asked to stop"
    MEMORY = "memory"
    RESTART = "restart"
    EMPTY = "empty"
    MAX_TIME = "max time"
    MAX_JOBS = "max jobs"
    STUCK = "stuck handler"


class Stop(NamedTuple):
    """How a worker process ended."""

    reason: Reason
    status: int
    """Its exit code."""
    clean: bool
    """Whether no handler is left running in one of its threads."""


class Worker:
    """Works a connection's queues until there is a reason to stop.

    `stop`, `hold` and `go_on` may be called from any thread and from signal handlers.
    """

    def __init__(
        self,
        queue: Queue,
        registry: Registry,
        options: WorkerOptions,
        *,
        middleware: Sequence[Middleware] = (),
        worker: str = "",
        control: Control | None = None,
        board: Board | None = None,
    ) -> None:
        """Run the handlers of `registry` inside `middleware`; without `control` there is no supervisor."""
        self.name = worker or new_worker_id(options.name)
        self._queue = queue
        self._options = options
        self._bell = Bell()
        self._board = board or Board.new(options.concurrency)
        self._reports = Reports(queue.notify, self.name, queue.name)
        self._settler = Settler(queue.driver, self._reports)
        self._crew = Crew(options.concurrency, board=self._board, bell=self._bell, grace_s=options.grace_s)
        self._watcher = Watcher(self._crew)
        self._coroutines = Coroutines()
        clock, order = Clock(), QueueOrder(options)
        self._runner = Runner(
            registry,
            middleware,
            options,
            reports=self._reports,
            settler=self._settler,
            clock=clock,
            coroutines=self._coroutines,
        )
        self._waiter = Waiter(queue.driver, self._bell)
        self._fetcher = Fetcher(
            queue,
            options,
            self.name,
            crew=self._crew,
            settler=self._settler,
            prefetch=Prefetch(self._crew, options.prefetch, order.most_at_once),
            order=order,
            waiter=self._waiter,
            bell=self._bell,
            clock=clock,
            reports=self._reports,
            vouched=lambda: self._lifeline.vouched,
        )
        self._lifeline = Lifeline(
            queue.driver,
            self.name,
            options,
            crew=self._crew,
            settler=self._settler,
            control=control,
            on_paused=self._paused,
            on_restart=self._restart,
            on_gone=self._gone,
        )
        self._supervised = control is not None
        self._asked_at: float | None = None
        self._at_once = False
        self._restart_asked = False
        self._looked_at = 0.0

    # Told from outside.

    def stop(self) -> None:
        """Stop gracefully: no new job starts, running ones get the grace. A second time: at once."""
        if self._asked_at is not None:
            self._at_once = True
        else:
            self._asked_at = monotonic()
        self._crew.closing = True
        self._bell.ring()

    def hold(self) -> None:
        """Claim nothing until `go_on`; what is held is worked on."""
        self._fetcher.on_hold = True

    def go_on(self) -> None:
        """Claim again."""
        self._fetcher.on_hold = False
        self._bell.ring()

    def _paused(self, paused: frozenset[str]) -> None:
        if paused != self._fetcher.paused:
            self._fetcher.paused = paused
            self._bell.ring()

    def _restart(self) -> None:
        self._restart_asked = True
        self._bell.ring()

    def _gone(self) -> None:
        if self._asked_at is None:
            logger.warning("worker %s: its supervisor is gone; it finishes what it runs and stops", self.name)
            self.stop()

    # Working.

    def run(self) -> Stop:
        """Work until there is a reason to stop, leave in order, and say why. Called once."""
        began = monotonic()
        self._lifeline.start()
        self._crew.start(self._runner, self._options.rest_s)
        self._watcher.start()
        self._reports.starting(self._options)
        try:
            while (reason := self._reason(began)) is None:
                self._fetcher.turn()
            return self._leave(reason)
        finally:
            self._end()

    def _reason(self, began: float) -> Reason | None:
        if self._asked_at is not None:
            return Reason.ASKED
        now, options = monotonic(), self._options
        if now >= self._looked_at + TICK_S:
            self._looked_at = now
            self._settler.look_after_left()
            if options.memory_mib and resident_bytes() >= options.memory_mib * _MIB:
                return Reason.MEMORY
            if self._watcher.ignoring():
                return Reason.STUCK
        reasons = (
            (Reason.RESTART, self._restart_asked),
            (Reason.EMPTY, self._is_empty()),
            (Reason.MAX_TIME, bool(options.max_time_s) and now - began >= options.max_time_s),
            (
                Reason.MAX_JOBS,
                bool(options.last_job) and self._fetcher.taken >= options.last_job and self._fetcher.idle,
            ),
        )
        return next((reason for reason, holds in reasons if holds), None)

    def _is_empty(self) -> bool:
        """Whether nothing is due and nothing reserved, here or elsewhere; `--once` looks for itself alone."""
        fetcher = self._fetcher
        if not fetcher.found_fewer or not fetcher.idle:
            return False
        if self._options.once:
            return True
        if not self._options.stop_when_empty:
            return False
        fetcher.found_fewer = False
        try:
            counts = [self._queue.driver.counts(queue) for queue in self._options.queues]
        except HesapeError:
            return False
        return not any(count.pending or count.reserved for count in counts)

    # Leaving.

    def _leave(self, reason: Reason) -> Stop:
        self._crew.closing = True
        self._fetcher.close()
        stuck_at = monotonic() if reason is Reason.STUCK else None
        while not self._fetcher.idle:
            if stuck_at is None and self._watcher.ignoring():
                reason, stuck_at = (Reason.STUCK if reason is not Reason.ASKED else reason), monotonic()
            since = self._asked_at if stuck_at is None else min(stuck_at, self._asked_at or stuck_at)
            if self._at_once or (since is not None and monotonic() >= since + self._options.grace_s):
                break
            if stuck_at is not None and len(self._watcher.ignoring()) == self._crew.held and not self._settler.waiting:
                break
            self._fetcher.turn()
        self._part(self._crew.running, neighbours_spent=stuck_at is None)
        status = {Reason.MEMORY: MEMORY_STATUS, Reason.STUCK: STUCK_STATUS}.get(reason, 0)
        self._reports.stopping(reason, status)
        return Stop(reason, status, clean=not self._crew.held)

    def _part(self, slots: list[Slot], *, neighbours_spent: bool) -> None:
        """Settle what still runs: who ignored its interruption as a timeout, the others as due again."""
        ignoring = self._watcher.ignoring()
        until = monotonic() + _PARTING_S
        for slot in slots:
            job, delivery, limits = slot.job, slot.delivery, slot.limits
            slot.abandoned = True
            if not (job and delivery and limits) or delivery.kind or monotonic() > until:
                continue
            delivery.expires = 0.0  # one attempt and a little patience: the process leaves
            if slot in ignoring:
                error = JobTimeoutError(f"the handler ran longer than its timeout of {limits.timeout_s:g} s")
                took_s = monotonic() - slot.began
                self._reports.timed_out(job, limits.timeout_s)
                self._runner.fail(slot, job, delivery, limits, error, took_s)
                continue
            try:
                job.release(0, spent=neighbours_spent)
            except HesapeError as error:
                self._reports.unsettled(job, error, monotonic() - slot.began)
            else:
                logger.warning("job %s (%s) is cut off and due again", job.id, job.resolved_name)
        if self._settler.waiting and not self._fetcher.outage.away:
            try:
                self._settler.delete()
            except HesapeError as error:
                logger.warning("finished jobs couldn't be deleted: %s", error)

    def _end(self) -> None:
        self._crew.close()
        self._watcher.close()
        self._waiter.close()
        self._coroutines.close()
        self._lifeline.close()
        if not self._supervised:
            try:
                self._queue.driver.retire(self.name)
            except HesapeError as error:
                logger.warning("worker %s couldn't sign off: %s", self.name, error)


def new_worker_id(name: str = "") -> str:
    """An id for one start of a worker: never used again, so that no beat of a successor hides what died."""
    label = (name or socket.gethostname())[:80]
    return f"{label}:{os.getpid()}:{uuid.uuid4().hex[:12]}"


def resident_bytes() -> int:
    """How much memory this process has resident."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - a path object costs more than the read
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
