"""N5: what a driver claims and declares is probed, never believed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hesape.driver import Capability, Driver, Fact
from hesape_conformance.catalogue import rule
from hesape_conformance.relay import Relay

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial


@rule("N5", "A store says that it is one, and its class carries the spec that its plugin registered")
def spec(trial: Trial) -> None:
    assert trial.spec.kind == "store"
    assert isinstance(trial.driver, Driver)
    assert trial.driver.spec.name == trial.spec.name
    assert trial.driver.spec.capabilities == trial.spec.capabilities
    assert trial.driver.spec.facts == trial.spec.facts
    assert trial.driver.ping()


@rule("N5", "Durable: a push that returned survives a crash of every process", facts=[Fact.DURABLE])
def durable(trial: Trial) -> None:
    trial.driver.close()
    child = trial.child("push", "acme", [{"n": n} for n in range(3)])
    pushed = child.answer()
    child.kill()
    assert [job.id for job in trial.another().pop(n=9)] == pushed
    if trial.harness.can_restart:
        trial.harness.kill()
        trial.harness.restart()
        assert trial.rows().keys() == set(pushed)


@rule("N5", "Multi-process: two processes work on the same jobs", facts=[Fact.MULTI_PROCESS])
def multi_process(trial: Trial) -> None:
    mine = trial.push()
    child = trial.child("hold", 5, 60.0)
    assert child.answer() == [mine.id]
    assert trial.queue.pop() == []
    other = trial.child("push", "acme", [{"from": "the child"}])
    [theirs] = other.answer()
    assert trial.take().id == theirs


@rule("N5", "Networked: the driver reaches its server through a relay, and only so", facts=[Fact.NETWORKED])
def networked(trial: Trial) -> None:
    endpoint = trial.harness.endpoint()
    assert endpoint is not None
    with Relay(endpoint) as relay:
        queue = trial.via(relay.endpoint)
        job = queue.push(trial.grant(), trial.job())
        assert relay.replies > 0, "the driver didn't talk through the relay"
        assert trial.take().id == job.id
        queue.close()


@rule("N5", "Transactions: what is rolled back never was", capability=Capability.TRANSACTIONS)
def transactions(trial: Trial) -> None:
    loan = trial.lend()
    loan.begin()
    trial.queue.push(trial.grant(), trial.job(), tx=loan.connection)
    assert trial.rows() == {}
    loan.rollback()
    assert trial.rows() == {}


@rule("N5", "Notifications: a waiter wakes long before its time", capability=Capability.NOTIFICATIONS)
def notifications(trial: Trial) -> None:
    timer = threading.Timer(0.2, trial.push)
    waiter = trial.another().driver
    waiter.wait(["default"], 0.01)
    start = time.monotonic()
    timer.start()
    assert waiter.wait(["default"], 20.0)
    assert time.monotonic() - start < 5
    timer.join()


@rule("N5", "Its schema is applied once, by numbered steps, and says its version")
def schema(trial: Trial) -> None:
    steps = [step.number for step in trial.driver.migrations()]
    assert steps == list(range(1, len(steps) + 1))
    trial.driver.migrate()
    assert trial.driver.migrate() == []
    assert trial.driver.schema_version() == len(steps)
    fresh = trial.another(namespace=trial.elsewhere()).driver
    other = trial.harness.open(trial.namespace)
    ends: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda driver=driver: ends.append(driver.migrate())) for driver in (fresh, fresh)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends) == sorted([[], steps]) if steps else ends == [[], []]
    assert fresh.schema_version() == len(steps)
    other.close()
