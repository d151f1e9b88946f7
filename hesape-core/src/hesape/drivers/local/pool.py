"""A few threads of this process that run jobs when they are due: what `deferred` is, and the child of `background`."""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
from time import time_ns
from typing import TYPE_CHECKING

from hesape.errors import StoreRefusedError
from hesape.worker.forks import end_child

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hesape.jobs import Job

logger = logging.getLogger(__name__)


class Pool:
    """At most `threads` jobs run at once and at most `room` wait, in the order of due time, priority and arrival."""

    def __init__(
        self,
        connection: str,
        run: Callable[[Job], None],
        *,
        threads: int,
        room: int,
        ended: Callable[[Job], None] | None = None,
    ) -> None:
        """Run jobs of `connection` with `run`; what it raises is logged, and the job isn't repeated.

        `ended` is told of each job that is over.
        """
        self._connection = connection
        self._run, self._ended = run, ended
        self._threads, self._room = threads, room
        self._waiting: list[tuple[int, int, int, Job]] = []
        self._running: dict[threading.Thread, Job] = {}
        self._arrived = itertools.count()
        self._changed = threading.Condition()
        self._workers: set[threading.Thread] = set()
        self._idle = 0
        self._ending = False

    def put(self, jobs: Iterable[tuple[int, int, Job]]) -> None:
        """Take jobs, all or none, each with its due time in microseconds and its priority."""
        found = list(jobs)
        with self._changed:
            if len(self._waiting) + len(found) > self._room:
                message = f"connection {self._connection!r}: {self._room} jobs wait already; run fewer, or use a store"
                raise StoreRefusedError(message)
            missing = min(self._threads - len(self._workers), len(self._waiting) + len(found) - self._idle)
            for _ in range(missing):
                worker = threading.Thread(target=self._work, name="hesape-" + self._connection, daemon=True)
                try:
                    worker.start()
                except RuntimeError as error:  # as Python does at the end of a process
                    if self._workers:
                        break
                    message = f"connection {self._connection!r}: no thread starts for its jobs: {error}"
                    raise StoreRefusedError(message) from error
                self._workers.add(worker)
            for due, priority, job in found:
                heapq.heappush(self._waiting, (due, priority, next(self._arrived), job))
            self._changed.notify(len(found))

    @property
    def busy(self) -> bool:
        """Whether it has threads, as it does until `close` once it has taken a job."""
        return bool(self._workers)

    def _work(self) -> None:
        pid = os.getpid()
        while (job := self._next()) is not None:
            try:
                self._run(job)
            except BaseException:
                logger.exception("job %s (%s) failed and isn't retried", job.id, job.name)
            if os.getpid() != pid:
                end_child(job)
            if self._ended is not None:
                self._ended(job)

    def _next(self) -> Job | None:
        """The next due job; waits for one, and answers `None` at the end."""
        me = threading.current_thread()
        with self._changed:
            self._running.pop(me, None)
            while True:
                wait_s = (self._waiting[0][0] - time_ns() // 1000) / 1e6 if self._waiting else None
                if wait_s is not None and wait_s <= 0:
                    job = self._running[me] = heapq.heappop(self._waiting)[-1]
                    return job
                if self._ending:
                    self._workers.remove(me)
                    self._changed.notify_all()
                    return None
                self._idle += 1
                self._changed.wait(wait_s)
                self._idle -= 1

    def close(self, within_s: float | None = None) -> list[Job]:
        """Run what is due, what that pushes included, and drop what isn't; a job taken afterwards starts anew.

        What isn't over `within_s` seconds later is returned: it runs on in a thread, or never starts.
        """
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            here = {threading.current_thread()}
            self._changed.wait_for(lambda: self._workers <= here, within_s)
            self._ending = False
            unfinished = [job for thread, job in self._running.items() if thread not in here]
            now_us = time_ns() // 1000
            unfinished += [job for due, *_, job in self._waiting if due <= now_us]
            delayed = sum(due > now_us for due, *_ in self._waiting)
            self._waiting.clear()
        if delayed:
            logger.warning("connection %s: %d delayed jobs are dropped", self._connection, delayed)
        return unfinished
