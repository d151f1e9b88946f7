from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hesape.driver import Driver
from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import OutcomeUnknownError, StoreUnavailableError
from hesape.events import Event
from hesape.grants import system_grant
from hesape.handlers import Handler, Middleware, Registry, attributes_of
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Claimed, Key
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Stop, Worker


class Shop:
    """A store in memory, handlers, and workers in threads of this process."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.events: list[Event] = []
        self.driver = driver or MemoryDriver()
        self.queue = Queue(self.driver, notify=self.events.append)
        self.registry = Registry()
        self.middleware: list[Middleware] = []
        self.workers: list[Worker] = []
        self.stops: list[Stop] = []
        self._threads: list[threading.Thread] = []

    def handler(
        self, name: str, *, action: str = "", middleware: Sequence[Middleware] = (), **settings: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            attributes = attributes_of(settings, name)  # type: ignore[arg-type]
            self.registry.add(Handler(function, name, action or name, attributes, tuple(middleware)))
            return function

        return register

    def push(self, name: str, payload: object = None, *, tenant: str = "acme", action: str = "", **more: Any) -> Job:
        grant = system_grant(action or name, tenant)
        return self.queue.push(grant, Job.new(grant, name, payload, **more))

    def start(self, **options: Any) -> Worker:
        wanted = {"sleep_s": 0.05, **options}
        worker = Worker(self.queue, self.registry, WorkerOptions(**wanted), middleware=self.middleware)
        self.workers.append(worker)
        thread = threading.Thread(target=lambda: self.stops.append(worker.run()), daemon=True)
        self._threads.append(thread)
        thread.start()
        return worker

    def work(self, **options: Any) -> Stop:
        """Work until nothing is due, or until the given options end it."""
        self.start(**({"stop_when_empty": True} | options))
        return self.join()

    def join(self) -> Stop:
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "the worker didn't stop"
        return self.stops[-1]

    def stop(self) -> Stop:
        for worker in self.workers:
            worker.stop()
        return self.join()

    def until(self, condition: Callable[[], object], within: float = 10.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, "it didn't come true in time"
            time.sleep(0.002)

    def kinds(self, job: Job) -> list[str]:
        return [event.kind for event in self.events if getattr(event, "id", None) == job.id]

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
            worker.stop()
        for thread in self._threads:
            thread.join(10)


class UnsteadyDriver(MemoryDriver):
    """A store that is away, or loses its answers, when it is told to."""

    away = False
    answers_lost = 0
    lost_as: type[Exception] = OutcomeUnknownError
    asked = 0

    def _trouble(self) -> None:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError

    def _lose(self) -> None:
        if self.answers_lost:
            self.answers_lost -= 1
            raise self.lost_as

    def reserve(self, claim: Claim) -> Claimed:
        self._trouble()
        claimed = super().reserve(claim)
        self._lose()
        return claimed

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        self._trouble()
        lost = super()._delete(keys, repeat=repeat, tx=tx)
        self._lose()
        return lost

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        self._trouble()
        return super()._release(key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions, tx=tx)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        self._trouble()
        return super().beat(worker, ttl_us, lease_us, but)


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture
def unsteady(shop: Shop) -> Iterator[UnsteadyDriver]:
    driver = UnsteadyDriver()
    shop.__init__(driver)  # type: ignore[misc]  # the same shop on another store
    yield driver
    driver.away, driver.answers_lost = False, 0
