"""A worker: takes jobs of one queue and runs the function of each one's type."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg

from hesape.errors import ArgumentInvalidError, HesapeError
from hesape_postgres.que.batch import PATIENCE_S, Batch, lock_batch
from hesape_postgres.que.client import QueClient
from hesape_postgres.que.job import QueJob

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL_S: Final = 5.0
LARGEST_BATCH: Final = 50

WorkMap = Mapping[str, Callable[[QueJob], Any]]
"""The function of each type."""


def queue_setting(queue: str | None) -> str:
    """The queue given, else `QUE_QUEUE`, else Que's default, the empty one."""
    return os.environ.get("QUE_QUEUE", "") if queue is None else queue


def interval_setting(interval: float | None) -> float:
    """The seconds given, else `QUE_WAKE_INTERVAL`, else 5."""
    found: object = os.environ.get("QUE_WAKE_INTERVAL") or DEFAULT_INTERVAL_S if interval is None else interval
    try:
        seconds = float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 < seconds < threading.TIMEOUT_MAX:
        source = "QUE_WAKE_INTERVAL" if interval is None else "interval"
        raise ArgumentInvalidError(f"{source} is {found!r}: expected a positive number of seconds")
    return seconds


class QueWorker:
    """Works the jobs of one queue, one after the other, until it is shut down.

    A job whose function returns is deleted, together with what the function left uncommitted on `job.conn`. One whose
    function raises, or whose type has none, is given back with the error's text and Que's delay. While its queue is
    empty, or the server fails, the worker looks again each `interval` seconds and holds no connection.
    """

    def __init__(
        self, client: QueClient, work_map: WorkMap, *, queue: str | None = None, interval: float | None = None
    ) -> None:
        """`queue` and `interval` are `QUE_QUEUE` and `QUE_WAKE_INTERVAL` of the environment unless given."""
        self.queue = queue_setting(queue)
        self.interval = interval_setting(interval)
        self._client = client
        self._work_map = work_map
        self._stop = threading.Event()
        self._busy = threading.Lock()
        self._thread: int | None = None
        self._size = 1

    def work(self) -> None:
        """Work until `shutdown()`; returns at once if that was called before."""
        if not self._busy.acquire(blocking=False):
            raise ArgumentInvalidError("this Que worker is working already; make one for each thread")
        watch = _Watch()
        try:
            self._thread = threading.get_ident()
            while not self._stop.is_set():
                if not self._work_batch(watch):
                    self._stop.wait(self.interval)
        finally:
            watch.stop()
            self._thread = None
            self._busy.release()

    def work_one(self) -> bool:
        """Work one job if one is due; whether there was one. A failing server is logged and counts as none."""
        try:
            job = self._client.lock_job(self.queue)
        except HesapeError as error:
            logger.warning("locking a job of queue %r: %s", self.queue, error)
            return False
        if job is None:
            return False
        self._run(job)
        return True

    def shutdown(self, timeout: float | None = None) -> bool:
        """Let the running job finish and stop; wait for that, and say whether it came within `timeout` seconds.

        Before `work()` it makes that return at once. From the worker's own thread (a handler, or a signal there) it
        doesn't wait.
        """
        self.ask_to_stop()
        if self._thread == threading.get_ident():
            return False
        stopped = self._busy.acquire(timeout=-1 if timeout is None else timeout)
        if stopped:
            self._busy.release()
        return stopped

    def ask_to_stop(self) -> None:
        """Start no further job, and wait for nothing."""
        self._stop.set()

    def _work_batch(self, watch: _Watch) -> bool:
        try:
            batch = lock_batch(self._client.pool, self.queue, self._size, self._client.delay_s)
        except HesapeError as error:
            logger.warning("locking jobs of queue %r: %s", self.queue, error)
            return False
        if batch is None:
            return False
        watch.over(batch)
        try:
            while not self._stop.is_set() and (job := batch.take()) is not None:
                self._run(job)
        finally:
            watch.over(None)
            batch.close()
        self._size = 1 if batch.slow else min(self._size * 2, LARGEST_BATCH)
        return True

    def _run(self, job: QueJob) -> None:
        with job:
            try:
                function = self._work_map.get(job.type)
                if function is None:
                    self._fail(job, f"unknown job type {job.type!r}: no function of this worker has that name")
                    return
                function(job)
                job.conclude()
            except Exception as error:
                logger.exception("Que job %s (%s) failed", job.id, job.type)
                self._fail(job, error)

    def _fail(self, job: QueJob, cause: Exception | str) -> None:
        try:
            job.conclude(cause)
        except (HesapeError, psycopg.Error) as error:
            logger.warning("the error of Que job %s could not be stored, it is due as before: %s", job.id, error)


class _Watch:
    """A thread that looks at the worker's batch from time to time, and sleeps while there is none."""

    def __init__(self) -> None:
        self._batch: Batch | None = None
        self._awake = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._look, name="que-watch", daemon=True)
        self._thread.start()

    def over(self, batch: Batch | None) -> None:
        self._batch = batch
        if batch is None:
            self._awake.clear()
        else:
            self._awake.set()

    def stop(self) -> None:
        self._stopped = True
        self._awake.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopped:
            self._awake.wait()
            time.sleep(PATIENCE_S)
            batch = self._batch
            if batch is not None:
                batch.look()
