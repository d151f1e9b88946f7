"""Working both stores through one connection: claims, settlements, outages (L, S)."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from hesape import retry
from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import LeaseLostError, OutcomeUnknownError, SchemaError, StoreUnavailableError
from hesape.events import JobAttempted
from hesape.records import Claim, Key, new_token

if TYPE_CHECKING:
    from failover.conftest import Bench, Unsteady

LEASE_US = 60_000_000


def claim(n: int = 10, *, token: bytes = b"", done: tuple[Key, ...] = (), repeat: bool = False) -> Claim:
    return Claim(("default",), n, LEASE_US, token or new_token(), "", done, repeat)


def counts(driver: MemoryDriver) -> tuple[int, int, int, int]:
    found = MemoryDriver.counts(driver, "default")
    return found.pending, found.delayed, found.reserved, found.failed


def test_a_claim_is_filled_from_the_first_store_and_then_from_the_next(bench: Bench) -> None:
    first = [bench.push_to(bench.orders).id for _ in range(3)]
    second = [bench.push_to(bench.main).id for _ in range(5)]
    jobs = bench.queue.pop(n=5)
    assert [job.id for job in jobs] == first + second[:2]
    assert [job.connection_name for job in jobs] == ["orders"] * 3 + ["main"] * 2
    assert bench.main.asked.count("reserve") == 1


def test_a_store_that_filled_the_claim_leaves_the_next_unasked(bench: Bench) -> None:
    for _ in range(3):
        bench.push_to(bench.orders)
    assert len(bench.queue.pop(n=2)) == 2
    assert bench.main.asked.count("reserve") == 0


@pytest.mark.parametrize("end", ["delete", "release", "fail"])
def test_a_job_is_settled_in_the_store_it_came_from(bench: Bench, end: str) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    for job in bench.queue.pop(n=2):
        job.extend(30)
        getattr(job, end)()
    expected = {"delete": (0, 0, 0, 0), "release": (1, 0, 0, 0), "fail": (0, 0, 0, 1)}[end]
    assert counts(bench.orders) == counts(bench.main) == expected


def test_deletions_ride_along_to_the_stores_they_belong_to(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    first = claim()
    keys = tuple(Key(row.id, first.token) for row in bench.driver.reserve(first).rows)
    bench.push_to(bench.orders)
    found = bench.driver.reserve(claim(1, done=keys))
    assert (len(found.rows), found.lost) == (1, [])
    assert (counts(bench.orders), counts(bench.main)) == ((0, 0, 1, 0), (0, 0, 0, 0))
    assert bench.main.asked.count("_delete") == 1, "a full claim sends the next store no other claim"
    assert bench.driver.reserve(claim(done=keys)).lost == list(keys)


def test_what_another_process_claimed_is_settled_wherever_it_is(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    jobs = bench.queue.pop(n=2)
    bench.driver._routes._members.clear()
    keys = [Key(job.id, job.record().token) for job in jobs]
    assert all(bench.driver._extend(keys, LEASE_US))
    assert bench.driver._release(keys[1], delay_us=0, spent=True, error=None, exceptions=0, tx=None)
    assert bench.driver._delete(keys, repeat=False, tx=None) == [keys[1]]
    assert bench.driver._delete([keys[0]], repeat=True, tx=None) == []
    assert bench.driver._delete([keys[1]], repeat=True, tx=None) == [keys[1]], "it is there, under another delivery"
    (job,) = bench.queue.pop()
    bench.driver._routes._members.clear()
    bench.driver.hand_back([job])
    assert (counts(bench.orders), counts(bench.main)) == ((0, 0, 0, 0), (1, 0, 0, 0))


def test_a_late_settlement_is_lost_in_its_own_store(bench: Bench) -> None:
    bench.push_to(bench.main)
    (job,) = bench.queue.pop()
    bench.main.clear("default")
    with pytest.raises(LeaseLostError):
        job.delete()


@pytest.mark.parametrize("dead", ["orders", "main"])
def test_a_dead_store_does_not_hold_up_the_other(bench: Bench, dead: str) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    bench.down(getattr(bench, dead))
    jobs = bench.queue.pop(n=5)
    assert [job.connection_name for job in jobs] == [{"orders": "main", "main": "orders"}[dead]]
    jobs[0].delete()
    asked = getattr(bench, dead).asked
    before = asked.count("reserve")
    for _ in range(20):
        bench.queue.pop()
    assert asked.count("reserve") == before


def test_without_any_store_a_claim_says_so(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE_S", 0.1)
    bench.down(bench.orders)
    bench.down(bench.main)
    with pytest.raises(StoreUnavailableError):
        bench.queue.pop()


def test_a_schema_that_is_missing_is_told_though_the_other_store_answers(bench: Bench) -> None:
    bench.down(bench.orders, SchemaError)
    with pytest.raises(SchemaError):
        bench.queue.pop()


def test_a_lost_answer_of_a_claim_is_asked_for_again_at_once(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.orders.lost_answers["reserve"] = 1
    (job,) = bench.queue.pop()
    assert job.attempts == 1
    job.delete()
    assert bench.member(bench.orders).reachable


def test_a_claim_whose_answer_stays_lost_is_given_back_when_the_store_is_back(bench: Bench) -> None:
    lost = bench.push_to(bench.orders)
    bench.push_to(bench.main)
    _dies_after_a_claim(bench.orders)
    (job,) = bench.queue.pop(n=5)
    assert job.connection_name == "main"
    assert counts(bench.orders) == (0, 0, 1, 0), "the lost claim holds it"
    bench.up(bench.orders)
    assert counts(bench.orders) == (1, 0, 0, 0)
    (again,) = bench.queue.pop(n=5)
    assert (again.id, again.attempts) == (lost.id, 1)


def test_a_claim_that_nobody_answered_is_repeated_under_its_token(bench: Bench) -> None:
    lost = bench.push_to(bench.orders)
    bench.push_to(bench.main)
    _dies_after_a_claim(bench.orders)
    bench.down(bench.main)
    mine = claim(1)
    with pytest.raises(OutcomeUnknownError):
        bench.driver.reserve(mine)
    bench.orders.trouble = bench.main.trouble = None
    found = bench.driver.reserve(mine._replace(repeat=True))
    assert [(row.id, row.attempts) for row in found.rows] == [(lost.id, 1)]


def test_a_claim_that_nobody_answered_and_only_the_other_answers_now_is_not_made_twice(bench: Bench) -> None:
    lost = bench.push_to(bench.orders)
    bench.push_to(bench.main)
    _dies_after_a_claim(bench.orders)
    bench.down(bench.main)
    mine = claim(5)
    with pytest.raises(OutcomeUnknownError):
        bench.driver.reserve(mine)
    bench.up(bench.main)
    found = bench.driver.reserve(mine._replace(repeat=True))
    assert [found.members[row.id] for row in found.rows if found.members] == ["main"]
    bench.up(bench.orders)
    assert counts(bench.orders) == (1, 0, 0, 0)
    assert [row.id for row in bench.driver.reserve(claim()).rows] == [lost.id]


def _dies_after_a_claim(driver: Unsteady) -> None:
    """Execute the next claim, lose its answer, and be away from then on."""
    real = driver._meet

    def meet(name: str, call: object) -> object:
        if name != "reserve" or driver.trouble is not None:
            return real(name, call)  # type: ignore[arg-type]
        driver.lost_answers["reserve"] = 1
        try:
            return real(name, call)  # type: ignore[arg-type]
        finally:
            driver.trouble = StoreUnavailableError
            driver._meet = real  # type: ignore[method-assign]

    driver._meet = meet  # type: ignore[method-assign]


def test_deletions_that_a_dead_store_missed_count_as_lost_and_are_made_when_it_is_back(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    first = claim()
    keys = tuple(Key(row.id, first.token) for row in bench.driver.reserve(first).rows)
    bench.down(bench.orders)
    found = bench.driver.reserve(claim(done=keys))
    assert found.lost == [keys[0]]
    assert (counts(bench.orders), counts(bench.main)) == ((0, 0, 1, 0), (0, 0, 0, 0))
    bench.up(bench.orders)
    assert counts(bench.orders) == (0, 0, 0, 0)


def test_a_hand_back_that_a_dead_store_missed_is_made_when_it_is_back(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    jobs = bench.queue.pop(n=2)
    bench.down(bench.orders)
    bench.driver.hand_back(jobs)
    assert (counts(bench.orders), counts(bench.main)) == ((0, 0, 1, 0), (1, 0, 0, 0))
    bench.up(bench.orders)
    assert counts(bench.orders) == (1, 0, 0, 0)


def test_a_deletion_that_one_of_two_stores_missed_is_repeated_harmlessly(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    jobs = bench.queue.pop(n=2)
    bench.main.refusals["_delete"] = [StoreUnavailableError()]
    assert bench.driver.delete_jobs(jobs) == []
    assert (counts(bench.orders), counts(bench.main)) == ((0, 0, 0, 0), (0, 0, 0, 0))


def test_settling_waits_for_the_jobs_own_store(bench: Bench) -> None:
    bench.push_to(bench.orders)
    (job,) = bench.queue.pop()
    bench.down(bench.orders)
    ended = threading.Thread(target=job.delete)
    ended.start()
    bench.until(lambda: bench.orders.asked.count("_delete") > 1)
    assert ended.is_alive()
    bench.orders.trouble = None
    ended.join(10)
    assert counts(bench.orders) == (0, 0, 0, 0)


def test_a_worker_works_both_stores_and_goes_on_with_one_while_the_other_is_away(bench: Bench) -> None:
    before = [bench.push_to(driver).id for driver in (bench.orders, bench.main)]
    bench.start()
    bench.until(lambda: len(bench.ran) == 2)
    bench.down(bench.orders)
    during = [bench.push().id for _ in range(10)]
    bench.until(lambda: len(bench.ran) == 12)
    bench.up(bench.orders)
    after = bench.push().id
    bench.until(lambda: len(bench.ran) == 13)
    assert sorted(job_id for _, job_id in bench.ran) == sorted([*before, *during, after])
    assert bench.ran[-1] == ("orders", after)
    bench.until(lambda: counts(bench.orders) == counts(bench.main) == (0, 0, 0, 0))
    ends = [event.connection for event in bench.events if isinstance(event, JobAttempted)]
    assert sorted(ends) == sorted(name for name, _ in bench.ran)


def test_a_worker_is_registered_with_both_and_its_death_frees_both(bench: Bench) -> None:
    for driver in (bench.orders, bench.main):
        bench.push_to(driver)
    mine = claim()._replace(worker="w")
    assert bench.driver.beat("w", 1, LEASE_US) == frozenset()
    assert len(bench.driver.reserve(mine).rows) == 2
    ((worker, _, held, since),) = bench.driver.workers()
    assert (worker, held, since is None) == ("w", 2, False)
    time.sleep(0.001)  # the time to live that was asked for
    assert bench.driver.rescue() == 2
    assert bench.driver.workers() == []


def test_beats_and_rescues_reach_the_living_while_the_other_is_away(bench: Bench) -> None:
    bench.down(bench.orders)
    bench.main.pause("later")
    assert bench.driver.beat("w", LEASE_US, LEASE_US) == {"later"}
    assert bench.driver.rescue() == 0
    assert [row.worker for row in bench.main.workers()] == ["w"]
    assert bench.driver.retire("w") == 0
    assert bench.main.workers() == []


def test_waiting_ends_when_either_store_has_something(bench: Bench) -> None:
    for driver in (bench.orders, bench.main):
        assert not bench.driver.wait(["default"], 0.02)
        timer = threading.Timer(0.05, bench.push_to, [driver])
        timer.start()
        began = time.monotonic()
        assert bench.driver.wait(["default"], 10)
        assert time.monotonic() - began < 5
        timer.join()
        for job in bench.queue.pop(n=5):
            job.delete()


def test_several_wait_at_once_each_for_its_own_queues(bench: Bench) -> None:
    woken: list[str] = []

    def wait(*queues: str) -> None:
        if bench.driver.wait(queues, 1.5):
            woken.append(queues[0])

    threads = [threading.Thread(target=wait, args=queues) for queues in (("a", "b"), ("a", "b"), ("c",))]
    for thread in threads:
        thread.start()
    bench.push_to(bench.main, queue="b")
    for thread in threads:
        thread.join(10)
    assert woken == ["a", "a"]


def test_waiting_often_does_not_gather_threads(bench: Bench) -> None:
    before = threading.active_count()
    for _ in range(100):
        bench.driver.wait(["default"], 0.001)
    assert threading.active_count() <= before + 2


def test_a_forked_child_looks_after_dead_stores_itself(bench: Bench) -> None:
    bench.down(bench.orders)
    bench.push()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        bench.orders.trouble = None
        until = time.monotonic() + 10
        while not bench.member(bench.orders).reachable and time.monotonic() < until:
            time.sleep(0.01)
        os.write(writer, b"1" if bench.member(bench.orders).reachable else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert os.read(reader, 1) == b"1"
    os.close(reader)
    assert not bench.member(bench.orders).reachable
