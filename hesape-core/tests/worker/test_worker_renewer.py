"""What a supervisor does in the store for a process of its own that is dead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hesape
from hesape.attributes import Attributes
from hesape.driver import Driver
from hesape.drivers.memory.driver import MemoryDriver
from hesape.handlers import Handler, Registry
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Claimed, Counts, Key, new_token
from hesape.worker.options import WorkerOptions
from hesape.worker.renewer import Renewer

DEAD = "dead"


def stuck() -> None:
    """Never called: it ran in the worker."""


class Rescued(MemoryDriver):
    """Somebody else frees what the dead worker held, and takes it, just before its supervisor asks for it."""

    def reserve(self, claim: Claim) -> Claimed:
        if claim.repeat:
            self.retire(DEAD)
            super().reserve(Claim(("default",), 1, 60_000_000, new_token()))
        return super().reserve(claim)


class Office:
    """A store, a dead worker that held a stuck job in it, and that worker's supervisor."""

    def __init__(self, driver: Driver) -> None:
        self.queue = Queue(driver)
        registry = Registry()
        registry.add(Handler(stuck, "stuck", "stuck", Attributes(tries=2, backoff=(100,), timeout=1.0), ()))
        self.renewer = Renewer(self.queue, registry, WorkerOptions(), list)

    def push(self) -> Job:
        grant = hesape.system_grant("stuck", "acme")
        return self.queue.push(grant, Job.new(grant, "stuck"))

    def hold(self, job: Job, lease_s: float = 60.0) -> Key:
        """Let the worker claim the job."""
        driver, key = self.queue.driver, Key(job.id, new_token())
        driver.beat(DEAD, 60_000_000, 60_000_000)
        [row] = driver.reserve(Claim(("default",), 1, round(lease_s * 1e6), key.token, DEAD)).rows
        assert row.id == job.id
        return key

    def bury(self, *culprits: Key) -> None:
        """Let the supervisor bury the worker, which held up these deliveries."""
        process: Any = SimpleNamespace(worker=DEAD, culprits=list(culprits))
        self.renewer.bury(process)
        self.renewer.start()
        self.renewer.close(10.0)
        assert self.queue.operator().workers() == []


@pytest.fixture(params=["memory://", "sqlite:///{}/jobs.db"], ids=["memory", "sqlite"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Driver]:
    with hesape.connect(request.param.format(tmp_path)) as queue:
        yield queue.driver


def test_a_stuck_delivery_of_a_dead_worker_counts_as_a_timeout_and_its_neighbour_goes_free(driver: Driver) -> None:
    office = Office(driver)
    stuck = office.hold(office.push())
    neighbour = office.push()
    office.hold(neighbour)
    office.bury(stuck)
    assert office.queue.counts() == Counts(1, 1, 0, 0)
    [again] = office.queue.pop()
    assert (again.id, again.attempts) == (neighbour.id, 2)


def test_a_dead_worker_is_given_no_other_job_when_its_own_was_freed_meanwhile() -> None:
    office = Office(Rescued())
    held = office.push()
    stuck, waiting = office.hold(held), office.push()
    office.bury(stuck)
    assert office.queue.counts() == Counts(1, 0, 1, 0)
    assert [(job.id, job.attempts) for job in office.queue.pop(n=2)] == [(waiting.id, 1)]


def test_a_stuck_delivery_whose_lease_is_over_holds_up_no_funeral(driver: Driver) -> None:
    office = Office(driver)
    job = office.push()
    stuck = office.hold(job, lease_s=0.01)
    time.sleep(0.05)
    office.bury(stuck)
    [again] = office.queue.pop()
    assert (again.id, again.attempts) == (job.id, 2)
