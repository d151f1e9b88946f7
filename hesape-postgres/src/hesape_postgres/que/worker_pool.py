"""Several workers in threads of one process."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

from hesape.errors import ArgumentInvalidError
from hesape_postgres.que.client import QueClient
from hesape_postgres.que.worker import QueWorker, WorkMap


class QueWorkerPool:
    """`count` workers of one queue, each in a thread of its own; the client's pool needs a connection for each.

    As a context manager it starts at the beginning of the block and is shut down at its end.
    """

    def __init__(
        self,
        client: QueClient,
        work_map: WorkMap,
        count: int = 1,
        *,
        queue: str | None = None,
        interval: float | None = None,
    ) -> None:
        """`queue` and `interval` as for `QueWorker`."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ArgumentInvalidError(f"{count!r} workers: expected a whole number of at least 1")
        self.workers = [QueWorker(client, work_map, queue=queue, interval=interval) for _ in range(count)]
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Start the threads; once is enough, and after `shutdown()` there is nothing to start."""
        with self._lock:
            if self._threads or self._stopped:
                return
            for number, worker in enumerate(self.workers, 1):
                # A program that ends without shutdown() isn't kept alive; the server frees its jobs.
                thread = threading.Thread(target=worker.work, name=f"que-worker-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()

    def shutdown(self, timeout: float | None = None) -> bool:
        """Let running jobs finish and stop all workers; whether they all did within `timeout` seconds."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads)
        for worker in self.workers:
            worker.ask_to_stop()
        deadline_s = None if timeout is None else time.monotonic() + timeout
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(None if deadline_s is None else max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Shut down and wait."""
        self.shutdown()
