"""The slots: threads that take jobs from one inbox and run one each at a time."""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from hesape.interrupts import Interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hesape.jobs import Delivery, Job
    from hesape.worker.bell import Bell
    from hesape.worker.board import Board
    from hesape.worker.outcome import Limits
    from hesape.worker.runner import Runner

logger = logging.getLogger(__name__)

IGNORED_S: Final = 2.0
"""How long an interrupted handler may take to end before it counts as one that ignores its interruption."""
SETTLE_S: Final = 3.0
"""How much later than its process's own limit the supervisor ends a process that doesn't answer."""
SHORT_S: Final = 0.5
"""A timeout shorter than this is told to the watcher; longer ones it finds in time by itself."""


class Slot:
    """One thread and what it runs. The watcher reads its fields from outside, and interrupts by `thread`."""

    def __init__(self, number: int, crew: Crew) -> None:
        """Be free."""
        self.number = number
        self.thread: Interruptible
        self.job: Job | None = None
        self.delivery: Delivery | None = None
        self.began = 0.0
        self.deadline = math.inf
        self.attempts = 0
        """The delivery's number; what a handler writes on its job doesn't change it."""
        self.limits: Limits | None = None
        self.timed_out_run = 0
        """The number of the run that the watcher found over its time."""
        self.abandoned = False
        """The process leaves and has settled this delivery; its thread must not."""
        self.cancel: Callable[[], None] | None = None
        """Cancels the coroutine that the slot waits for."""
        self.done = 0
        self.busy_s = 0.0
        self._crew = crew

    @property
    def timed_out(self) -> bool:
        """Whether the run of now, or the last one, went over its time."""
        return self.timed_out_run == self.thread.runs

    def begin(self, job: Job, delivery: Delivery, began: float, limits: Limits) -> None:
        """A handler is about to start."""
        timeout_s = limits.timeout_s
        self.attempts = job.attempts
        self.limits = limits
        self.began = began
        self.delivery = delivery
        self.job = job
        crew = self._crew
        if timeout_s > 0:
            self.deadline = deadline = began + timeout_s
            crew.board.note(self.number, delivery.id, delivery.token, deadline + crew.leave_s)
            if timeout_s < SHORT_S:
                crew.watch.ring()
        else:
            self.deadline = math.inf
            crew.board.note(self.number, delivery.id, delivery.token, math.inf)

    def end(self) -> bool:
        """The handler ended; whether somebody else has settled the delivery."""
        self.deadline = math.inf
        return self.abandoned

    def on_coroutine(self, cancel: Callable[[], None] | None) -> None:
        """Learn how to cancel the coroutine that is about to start; `None`: it ended."""
        self.cancel = cancel
        if cancel is not None and self.timed_out:
            cancel()


class Crew:
    """The slots of a process, and the inbox they take from."""

    def __init__(self, size: int, *, board: Board, bell: Bell, grace_s: float) -> None:
        """Have `size` slots that ring `bell` when there is something to fetch or settle."""
        self.board = board
        self.bell = bell
        self.watch: Bell
        self.leave_s = IGNORED_S + grace_s + SETTLE_S
        self.slots = [Slot(number, self) for number in range(size)]
        self.closing = False
        """No job starts any more."""
        self.given = 0
        self._taken_back = 0
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._unstarted: SimpleQueue[Job] = SimpleQueue()
        self._ready: SimpleQueue[None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self, runner: Runner, rest_s: float) -> None:
        """Start the threads."""
        for slot in self.slots:
            name = f"slot-{slot.number}"
            thread = threading.Thread(target=self._work, args=(slot, runner, rest_s), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in self.slots:
            self._ready.get()

    def put(self, jobs: Iterable[Job]) -> None:
        """Hand jobs over, in order."""
        for job in jobs:
            self.given += 1
            self._inbox.put(job)

    @property
    def waiting(self) -> int:
        """Jobs that no slot has taken yet."""
        return self._inbox.qsize()

    @property
    def held(self) -> int:
        """Jobs handed over that haven't ended."""
        return self.given - self._taken_back - self.done

    @property
    def done(self) -> int:
        """Jobs that ended."""
        return sum([slot.done for slot in self.slots])

    @property
    def busy_s(self) -> float:
        """How long all slots together ran what has ended."""
        return sum([slot.busy_s for slot in self.slots])

    @property
    def running(self) -> list[Slot]:
        """The slots with a delivery."""
        return [slot for slot in self.slots if slot.job is not None]

    def take_back(self, queues: frozenset[str] | None = None) -> list[Job]:
        """Jobs that haven't started, of these queues or of all, in their order; they won't start."""
        drained = [*_drain(self._unstarted), *_drain(self._inbox)]
        jobs = [job for job in drained if job is not None and (queues is None or job.queue in queues)]
        if len(jobs) < len(drained):
            gone = set(map(id, jobs))
            for job in drained:
                if id(job) not in gone:
                    self._inbox.put(job)
        self._taken_back += len(jobs)
        return jobs

    def close(self) -> None:
        """End the threads that run nothing."""
        self.closing = True
        for _ in self.slots:
            self._inbox.put(None)
        for slot, thread in zip(self.slots, self._threads, strict=False):
            if slot.job is None:
                thread.join(1.0)

    def _work(self, slot: Slot, runner: Runner, rest_s: float) -> None:
        slot.thread = Interruptible()
        self._ready.put(None)
        inbox, bell = self._inbox, self.bell
        while (job := inbox.get()) is not None:
            if self.closing:
                self._unstarted.put(job)
                bell.ring()
                continue
            began = monotonic()
            try:
                runner.run(slot, job)
            except BaseException:
                logger.exception("job %s: the worker failed; the end of its lease redelivers it", job.id)
            self.board.clear(slot.number)
            slot.job = slot.delivery = None
            slot.busy_s += monotonic() - began
            slot.done += 1
            bell.ring()
            if rest_s:
                self._rest(rest_s)

    def _rest(self, rest_s: float) -> None:
        until = monotonic() + rest_s
        while not self.closing and (left := until - monotonic()) > 0:
            sleep(min(left, 0.1))


def _drain(queue: SimpleQueue[Job | None] | SimpleQueue[Job]) -> list[Job | None]:
    found: list[Job | None] = []
    with suppress(Empty):
        while True:
            found.append(queue.get_nowait())
    return found
