"""A real worker in a thread of this process, over each embedded store, whose clock a test may move."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hesape.app import App
from hesape.config import Configuration
from hesape.driver import Driver
from hesape.events import Event
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Worker


class Bench:
    """An App on one store, and its workers."""

    def __init__(self, url: str) -> None:
        self.app = App(Configuration(source="test", default="main", tables={"main": {"url": url}}))
        self.queue: Queue = self.app.connection()
        self.driver: Driver = self.queue.driver
        self.events: list[Event] = []
        self.queue.notify = self.events.append
        self.ran: list[str] = []
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def advance(self, seconds: float) -> None:
        """Move the store's clock."""
        before: Callable[[], int] = self.driver.clock  # type: ignore[attr-defined]
        self.driver.clock = lambda: before() + round(seconds * 1_000_000)  # type: ignore[attr-defined]

    def push(self, name: str, payload: object = None, *, tenant: str = "acme", **more: Any) -> Job:
        grant = system_grant(name, tenant)
        return self.queue.push(grant, Job.new(grant, name, payload, **more))

    def start(self, **options: Any) -> Worker:
        worker = Worker(
            self.queue, self.app.handlers, WorkerOptions(**{"sleep_s": 0.02, **options}), middleware=self.app.middleware
        )
        thread = threading.Thread(target=worker.run, daemon=True)
        self.workers.append((worker, thread))
        thread.start()
        return worker

    def work(self, **options: Any) -> None:
        """Work until nothing is due."""
        self.start(stop_when_empty=True, **options)
        self.workers[-1][1].join(20)
        assert not self.workers[-1][1].is_alive(), "the worker didn't stop"

    def until(self, condition: Callable[[], object], within_s: float = 10.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it didn't come true in time"
            time.sleep(0.002)

    def counts(self) -> tuple[int, int, int, int]:
        found = self.queue.counts()
        return found.pending, found.delayed, found.reserved, found.failed

    def kinds(self, job: Job) -> list[str]:
        return [event.kind for event in self.events if getattr(event, "id", None) == job.id]

    def close(self) -> None:
        for worker, thread in self.workers:
            worker.stop()
            worker.stop()
            thread.join(10)
        self.app.close()


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Both embedded stores, one after the other."""
    bench = Bench("memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}")
    yield bench
    bench.close()
