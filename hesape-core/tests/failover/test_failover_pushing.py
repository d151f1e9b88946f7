"""Which store takes a push, and how often a dead one is asked (I2)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs
import pytest

from hesape import App, plugins, retry
from hesape.attributes import Attributes
from hesape.driver import Capability
from hesape.drivers.failover import member
from hesape.drivers.failover.driver import FailoverDriver
from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import (
    DuplicateJobError,
    ForgedError,
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    UnsupportedError,
)
from hesape.events import Event, QueueFailedOver
from hesape.grants import system_grant
from hesape.jobs import Job, prepare, prepared_row
from hesape.queue import Queue

if TYPE_CHECKING:
    from pathlib import Path

    from failover.conftest import Bench

GRANT = system_grant("work", "acme")


def test_the_first_store_takes_what_it_can(bench: Bench) -> None:
    jobs = [bench.push() for _ in range(3)]
    assert bench.ids(bench.orders) == {job.id for job in jobs}
    assert bench.main.asked == []
    assert bench.failovers() == []


@pytest.mark.parametrize("trouble", [StoreUnavailableError, StoreRefusedError])
def test_what_was_surely_not_written_moves_on(bench: Bench, trouble: type[StoreError]) -> None:
    bench.down(bench.orders, trouble)
    job = bench.push()
    assert bench.ids(bench.orders) == set()
    assert bench.ids(bench.main) == {job.id}
    assert bench.failovers() == [("main", trouble.__name__)]


def test_a_bulk_moves_on_as_a_whole(bench: Bench) -> None:
    bench.down(bench.orders)
    jobs = bench.queue.bulk(GRANT, [Job.new(GRANT, "work") for _ in range(5)])
    assert bench.ids(bench.main) == {job.id for job in jobs}


@pytest.mark.parametrize("lost", [1, 3])
def test_an_unknown_outcome_is_repeated_on_the_same_store(bench: Bench, lost: int) -> None:
    bench.orders.lost_answers["_store"] = lost
    job = bench.push()
    assert bench.ids(bench.orders) == {job.id}
    assert bench.main.asked == []
    assert bench.failovers() == []


def test_an_outcome_that_stays_unknown_is_raised_and_the_push_stays_with_its_store(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE_S", 0.2)
    job = Job.new(GRANT, "work")
    bench.orders.lost_answers["_store"] = 1
    real = bench.orders._meet

    def dies_after_the_first(name: str, call: object) -> object:
        try:
            return real(name, call)  # type: ignore[arg-type]
        finally:
            bench.orders.trouble = StoreUnavailableError

    bench.orders._meet = dies_after_the_first  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError, match="'orders' may have stored it"):
        bench.queue.push(GRANT, job)
    with pytest.raises(OutcomeUnknownError, match="'orders' may have stored it"):
        bench.queue.push(GRANT, job)
    assert bench.ids(bench.main) == set()
    other = bench.push()
    assert bench.ids(bench.main) == {other.id}, "another job doesn't wait for that store"
    bench.orders._meet = real  # type: ignore[method-assign]
    bench.up(bench.orders)
    bench.queue.push(GRANT, job)
    assert bench.ids(bench.orders) == {job.id}
    assert bench.ids(bench.main) == {other.id}


def test_a_store_that_became_read_only_after_an_unknown_outcome_is_still_the_only_one_asked(bench: Bench) -> None:
    bench.orders.refusals["_store"] = [OutcomeUnknownError(), StoreRefusedError("read-only")]
    job = Job.new(GRANT, "work")
    with pytest.raises(OutcomeUnknownError, match="read-only"):
        bench.driver._store([prepared_row(prepare(GRANT, job))], None)
    assert bench.main.asked == []


def test_what_the_store_says_about_the_job_ends_the_push(bench: Bench) -> None:
    job = bench.push()
    other = Job.new(GRANT, "work", {"other": 1}, id=job.id)
    with pytest.raises(DuplicateJobError):
        bench.queue.push(GRANT, other)
    bench.orders.refusals["_store"] = [OutcomeUnknownError()]
    with pytest.raises(DuplicateJobError):
        bench.queue.push(GRANT, other)
    assert bench.main.asked == []
    bench.down(bench.orders)
    assert bench.queue.push(GRANT, other).id in bench.ids(bench.main), "a known outcome binds to no store"


def test_a_conflict_is_tried_again_before_the_next_store_is(bench: Bench) -> None:
    bench.orders.refusals["_store"] = [StoreBusyError()]
    job = bench.push()
    assert bench.ids(bench.orders) == {job.id}
    bench.orders.refusals["_store"] = [StoreBusyError(), StoreBusyError()]
    other = bench.push()
    assert bench.ids(bench.main) == {other.id}
    assert bench.member(bench.orders).reachable


def test_other_errors_of_a_store_are_nobody_elses_business(bench: Bench) -> None:
    bench.down(bench.orders, SchemaError)
    with pytest.raises(SchemaError):
        bench.push()
    assert bench.main.asked == []


def test_without_any_store_the_push_says_so_and_what_was_wrong_before(bench: Bench) -> None:
    bench.orders.refusals["_store"] = [StoreUnavailableError("orders is dead")] * 50
    bench.main.refusals["_store"] = [StoreRefusedError("main is full")] * 50
    with pytest.raises(StoreRefusedError, match="main is full") as caught:
        bench.push()
    assert "orders: StoreUnavailableError: orders is dead" in "".join(caught.value.__notes__)


def test_a_dead_store_is_asked_once_and_then_left_to_its_own_thread(bench: Bench) -> None:
    bench.down(bench.orders)
    for _ in range(50):
        bench.push()
    assert bench.orders.asked.count("_store") == 1
    assert len(bench.ids(bench.main)) == 50
    assert bench.failovers() == [("main", "StoreUnavailableError")]


def test_the_first_store_takes_over_when_it_is_back_and_the_next_failure_is_told_again(bench: Bench) -> None:
    for number in (1, 2):
        bench.down(bench.orders)
        bench.push()
        assert len(bench.failovers()) == number
        bench.up(bench.orders)
        back = bench.push()
        assert back.id in bench.ids(bench.orders)
        assert len(bench.failovers()) == number


def test_a_store_that_refuses_is_offered_one_push_after_a_while(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "REFUSED_S", 0.1)
    bench.down(bench.orders, StoreRefusedError)
    for _ in range(20):
        bench.push()
    assert bench.orders.asked.count("_store") == 1
    bench.until(lambda: (bench.push(), bench.orders.asked.count("_store"))[1] > 1)
    assert bench.failovers() == [("main", "StoreRefusedError")], "it is still the same failure"
    bench.orders.trouble = None
    bench.until(lambda: bench.push().id in bench.ids(bench.orders))


def test_many_threads_tell_of_one_failure_once(bench: Bench) -> None:
    bench.down(bench.orders)
    start = threading.Barrier(8, timeout=10)

    def push() -> None:
        start.wait()
        for _ in range(20):
            bench.push()

    threads = [threading.Thread(target=push) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bench.ids(bench.main)) == 160
    assert bench.failovers() == [("main", "StoreUnavailableError")]


def test_when_all_were_left_out_all_are_asked(bench: Bench) -> None:
    bench.down(bench.orders)
    bench.down(bench.main)
    with pytest.raises(StoreUnavailableError):
        bench.push()
    bench.main.trouble = None
    assert bench.push().id in bench.ids(bench.main), "nobody waits for the thread that looks after it"


def test_every_push_is_checked(bench: Bench) -> None:
    with pytest.raises(ForgedError):
        bench.queue.push(system_grant("other", "acme"), _claiming("work"))
    with pytest.raises(ForgedError):
        bench.driver.store([Job.new(GRANT, "work")])  # type: ignore[list-item]
    assert bench.orders.asked == bench.main.asked == []


def _claiming(action: str) -> Job:
    job = Job.new(GRANT, "work")
    job.action = action
    return job


def test_a_transaction_is_refused_before_any_store_is_asked(bench: Bench) -> None:
    with pytest.raises(UnsupportedError, match="can't join a transaction"):
        bench.queue.push(GRANT, Job.new(GRANT, "work"), tx=object())
    assert bench.orders.asked == []


def test_a_unique_key_is_refused_before_any_store_is_asked(bench: Bench) -> None:
    with pytest.raises(UnsupportedError, match="unique key"):
        bench.push(attributes=Attributes(unique_for=60))
    assert bench.orders.asked == []


def test_it_claims_what_all_its_members_can_and_are(bench: Bench) -> None:
    class Rich(MemoryDriver):
        spec = attrs.evolve(
            MemoryDriver.spec, capabilities=frozenset({Capability.TRANSACTIONS, Capability.NOTIFICATIONS})
        )

    class Poor(Rich):
        spec = attrs.evolve(MemoryDriver.spec, capabilities=frozenset({Capability.TRANSACTIONS}))

    assert FailoverDriver("a", {"b": Rich(), "c": Rich()}).spec.capabilities == {Capability.NOTIFICATIONS}
    assert FailoverDriver("a", {"b": Rich(), "c": Poor()}).spec.capabilities == frozenset()
    assert FailoverDriver.spec.capabilities == frozenset()


def test_a_failover_connection_may_stand_behind_another(bench: Bench) -> None:
    last = MemoryDriver()
    outer = Queue(FailoverDriver("outer", {"safe": bench.driver, "last": last}), name="outer")
    bench.push(outer)
    (job,) = outer.pop()
    assert job.connection_name == "orders"
    job.delete()
    bench.down(bench.orders)
    bench.down(bench.main)
    bench.push(outer)
    (job,) = outer.pop()
    assert job.connection_name == "last"
    outer.close()


def test_an_application_that_pushes_tells_its_observers_once(tmp_path: Path) -> None:
    class Observer:
        @plugins.hookimpl
        def hesape_event(self, event: Event) -> None:
            if isinstance(event, QueueFailedOver):
                told.append(event)

    told: list[QueueFailedOver] = []
    (tmp_path / "hesape.toml").write_text(
        'default = "safe"\n[connections.safe]\ndriver = "failover"\nconnections = ["first", "second"]\n'
        '[connections.first]\nurl = "sqlite:///first.db"\n[connections.second]\nurl = "sqlite:///second.db"\n'
    )
    (tmp_path / "first.db").mkdir()
    remove = plugins.add_observer(Observer())
    app = App(tmp_path)
    try:
        handler = app.handler("work")(lambda: None)
        for _ in range(2):
            handler.using(queue="high").push(GRANT)
        assert app.connection("second").counts("high").pending == 2
        assert [(one.connection, one.queue, one.member) for one in told] == [("safe", "high", "second")]
        assert told[0].error in {"StoreUnavailableError", "StoreRefusedError"}
    finally:
        remove()
        app.close()
