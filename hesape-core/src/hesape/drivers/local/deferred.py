"""`deferred` runs jobs on a few threads of this process, after `push` has returned; drained when the process ends."""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import threading
from collections.abc import Sequence
from typing import ClassVar

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.drivers.local.driver import LocalDriver
from hesape.drivers.local.settings import allow, whole
from hesape.errors import StoreRefusedError
from hesape.jobs import Job
from hesape.records import NewRow

hookimpl = pluggy.HookimplMarker("hesape")
logger = logging.getLogger(__name__)


class DeferredDriver(LocalDriver):
    """A bounded pool of threads over what waits, in the order of due time, priority and push.

    What is due when the process ends is run before it does; what isn't due yet is dropped, and the log says how many.
    """

    spec: ClassVar[DriverSpec]

    def __init__(self, connection: str, host: Host, *, threads: int, room: int) -> None:
        """Run at most `threads` jobs at once through `host`, with at most `room` waiting."""
        super().__init__(connection)
        self._host = host
        self._threads, self._room = threads, room
        self._waiting: list[tuple[int, int, int, Job]] = []
        self._pushed = itertools.count()
        self._changed = threading.Condition()
        self._workers: list[threading.Thread] = []
        self._idle = 0
        self._ending = False
        atexit.register(self.close)

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        self._refuse_unique(rows)
        now = self.now()
        jobs = [(max(now + row.delay_us, row.run_at_us or 0), row.priority, self._job(row)) for row in rows]
        with self._changed:
            if len(self._waiting) + len(jobs) > self._room:
                message = f"connection {self._connection!r}: {self._room} jobs wait already; run fewer, or use a store"
                raise StoreRefusedError(message)
            self._ending = False
            for due, priority, job in jobs:
                heapq.heappush(self._waiting, (due, priority, next(self._pushed), job))
            while len(self._workers) < min(self._threads, len(self._workers) + len(jobs) - self._idle):
                self._start()
            self._changed.notify(len(jobs))

    def _start(self) -> None:
        worker = threading.Thread(target=self._work, name=f"hesape-deferred-{len(self._workers)}", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._host.run(job)
            except BaseException:
                logger.exception("job %s (%s) failed and isn't retried", job.id, job.name)

    def _next(self) -> Job | None:
        """The next due job; waits for one, and answers `None` at the end."""
        with self._changed:
            while True:
                wait_s = (self._waiting[0][0] - self.now()) / 1e6 if self._waiting else None
                if wait_s is not None and wait_s <= 0:
                    return heapq.heappop(self._waiting)[-1]
                if self._ending:
                    return None
                self._idle += 1
                self._changed.wait(wait_s)
                self._idle -= 1

    def close(self) -> None:
        """Run what is due, drop what isn't, and end the threads; a push afterwards starts anew."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            workers, self._workers = self._workers, []
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join()
        if self._waiting:
            logger.warning("connection %s: %d delayed jobs are dropped", self._connection, len(self._waiting))
            self._waiting.clear()


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    allow(settings, "threads", "room")
    return DeferredDriver(
        settings.name, host, threads=whole(settings, "threads", 4), room=whole(settings, "room", 10_000)
    )


DeferredDriver.spec = DriverSpec(
    name="deferred",
    contract=CONTRACT,
    kind="local",
    summary="runs jobs on threads of this process after push; keeps nothing",
    open=_open,
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return DeferredDriver.spec
