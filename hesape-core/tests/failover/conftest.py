"""A failover connection over two stores in memory that are away, refuse, or lose answers when they are told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from hesape.driver import Driver
from hesape.drivers.failover.driver import FailoverDriver
from hesape.drivers.failover.member import Member
from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from hesape.events import Event, QueueFailedOver
from hesape.grants import system_grant
from hesape.handlers import Handler, Registry
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Claimed, Key, NewRow
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Worker

GRANT = system_grant("work", "acme")
CALLS = (
    "_store",
    "reserve",
    "_delete",
    "_release",
    "_fail",
    "_extend",
    "_hand_back",
    "beat",
    "rescue",
    "ping",
    "counts",
)


class Unsteady(MemoryDriver):
    """Counts what it is asked, and has trouble on request."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: type[StoreError] | None = None
        """Raised by every call, before it does anything."""
        self.refusals: dict[str, list[StoreError]] = {}
        """Raised by the next calls of a name, before they do anything."""
        self.lost_answers: dict[str, int] = {}
        """How many of the next calls of a name are executed and not answered."""
        self.asked: list[str] = []

    def _meet(self, name: str, call: Callable[[], Any]) -> Any:
        self.asked.append(name)
        if self.trouble is not None:
            raise self.trouble
        if self.refusals.get(name):
            raise self.refusals[name].pop(0)
        answer = call()
        if self.lost_answers.get(name):
            self.lost_answers[name] -= 1
            raise OutcomeUnknownError
        return answer

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        self._meet("_store", lambda: MemoryDriver._store(self, rows, tx))

    def reserve(self, claim: Claim) -> Claimed:
        found: Claimed = self._meet("reserve", lambda: MemoryDriver.reserve(self, claim))
        return found

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        lost: list[Key] = self._meet("_delete", lambda: MemoryDriver._delete(self, keys, repeat=repeat, tx=tx))
        return lost


def _met(name: str) -> Any:
    def call(self: Unsteady, *args: Any, **kwargs: Any) -> Any:
        return self._meet(name, lambda: getattr(MemoryDriver, name)(self, *args, **kwargs))

    return call


for _name in CALLS:
    if _name not in vars(Unsteady):
        setattr(Unsteady, _name, _met(_name))


class Bench:
    """Two stores, the connection before them, and workers."""

    def __init__(self) -> None:
        self.orders, self.main = Unsteady(), Unsteady()
        self.driver = FailoverDriver("safe", {"orders": self.orders, "main": self.main})
        self.events: list[Event] = []
        self.queue = Queue(self.driver, name="safe", notify=self.events.append)
        self.ran: list[tuple[str, str]] = []
        self.registry = Registry()
        self.registry.add(Handler(self._work, "work", "work"))
        self.workers: list[tuple[Worker, threading.Thread]] = []

    def _work(self, job: Job) -> None:
        self.ran.append((job.connection_name, job.id))

    def push(self, through: Queue | None = None, **fields: Any) -> Job:
        return (through or self.queue).push(GRANT, Job.new(GRANT, "work", **fields))

    def push_to(self, driver: Driver, **fields: Any) -> Job:
        return self.push(Queue(driver), **fields)

    def start(self, **options: Any) -> Worker:
        worker = Worker(self.queue, self.registry, WorkerOptions(**{"sleep_s": 0.02, **options}))
        thread = threading.Thread(target=worker.run, daemon=True)
        self.workers.append((worker, thread))
        thread.start()
        return worker

    def until(self, condition: Callable[[], object], within_s: float = 10.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it didn't come true in time"
            time.sleep(0.002)

    def member(self, driver: Driver) -> Member:
        return next(member for member in self.driver._members if member.driver is driver)

    def failovers(self) -> list[tuple[str, str]]:
        return [(event.member, event.error) for event in self.events if isinstance(event, QueueFailedOver)]

    def ids(self, driver: MemoryDriver) -> set[str]:
        return set(driver._opened().jobs)

    def down(self, driver: Unsteady, trouble: type[StoreError] = StoreUnavailableError) -> None:
        driver.trouble = trouble

    def up(self, driver: Unsteady) -> None:
        driver.trouble = None
        self.until(lambda: self.member(driver).reachable)

    def close(self) -> None:
        self.orders.trouble = self.main.trouble = None
        for worker, thread in self.workers:
            worker.stop()
            worker.stop()
            thread.join(10)
        self.driver.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.close()
