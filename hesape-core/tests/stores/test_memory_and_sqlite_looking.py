"""Counts, the failed list, coordination and waiting, on both embedded stores."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from hesape.errors import JobNotFoundError, NotFailedError
from hesape.jobs import new_id


def test_counts_follow_a_job_through_every_state(bench: Any) -> None:
    bench.push(delay_s=1)
    assert bench.counts() == (0, 1, 0, 0)
    bench.advance(1)
    assert bench.counts() == (1, 0, 0, 0)
    (key,) = bench.take()
    assert bench.counts() == (0, 0, 1, 0)
    bench.fail(key)
    assert bench.counts() == (0, 0, 0, 1)
    assert bench.counts("other") == (0, 0, 0, 0)


def test_the_oldest_pending_job_is_found_whatever_its_priority_and_state(bench: Any) -> None:
    assert bench.driver.oldest_pending("default") is None
    start = bench.now_us
    bench.push(delay_s=2)
    assert bench.driver.oldest_pending("default") is None
    bench.advance(3)
    assert bench.driver.oldest_pending("default") == start + 2_000_000
    bench.push(priority=1)
    bench.push(priority=300)
    assert bench.driver.oldest_pending("default") == start + 2_000_000
    assert len(bench.take(2, lease_s=1)) == 2
    assert bench.driver.oldest_pending("default") == bench.now_us
    bench.advance(1)
    assert bench.driver.oldest_pending("default") == start + 2_000_000


def test_queues_are_those_with_jobs_failed_ones_included_and_paused_ones(bench: Any) -> None:
    bench.push_failed(queue="failed")
    bench.push(queue="Z")
    bench.push(queue="a")
    bench.push(queue="a")
    bench.push(queue="delayed", delay_s=1)
    bench.push(queue="held")
    (key,) = bench.take(queues=("held",))
    bench.driver.pause("paused")
    assert bench.driver.queues() == ["Z", "a", "delayed", "failed", "held", "paused"]
    bench.driver._delete([key], repeat=False, tx=None)
    bench.driver.resume("paused")
    assert bench.driver.queues() == ["Z", "a", "delayed", "failed"]


def test_the_failed_list_is_newest_first_and_pages_through_equal_times(bench: Any) -> None:
    old = sorted((bench.push_failed() for _ in range(3)), reverse=True)
    bench.advance(1)
    new = sorted((bench.push_failed() for _ in range(4)), reverse=True)
    found: list[str] = []
    before = None
    while page := bench.driver.failed(None, queue=None, limit=2, before=before):
        found += [row.id for row in page]
        before = (page[-1].failed_us, page[-1].id)
    assert found == [*new, *old]


@pytest.mark.parametrize("tenant", [None, "acme", "globex"])
@pytest.mark.parametrize("queue", [None, "a", "b"])
def test_the_failed_list_keeps_to_a_tenant_and_a_queue(bench: Any, tenant: str | None, queue: str | None) -> None:
    every: list[tuple[str, str, str]] = []
    for its_tenant in ("acme", "globex"):
        for its_queue in ("a", "b"):
            bench.advance(1)
            every.insert(0, (bench.push_failed(tenant=its_tenant, queue=its_queue), its_tenant, its_queue))
    wanted = [
        job for job, its_tenant, its_queue in every if tenant in {None, its_tenant} and queue in {None, its_queue}
    ]
    found = bench.driver.failed(tenant, queue=queue, limit=9, before=None)
    assert [row.id for row in found] == wanted
    after = bench.driver.failed(tenant, queue=queue, limit=9, before=(found[0].failed_us, found[0].id))
    assert [row.id for row in after] == wanted[1:]


def test_find_returns_a_failed_job_to_its_tenant_alone(bench: Any) -> None:
    job = bench.push_failed()
    live = bench.push()
    assert bench.driver.find("acme", job).id == bench.driver.find(None, job).id == job
    for tenant, job_id in [("globex", job), ("globex", live), ("acme", new_id()), (None, new_id())]:
        with pytest.raises(JobNotFoundError):
            bench.driver.find(tenant, job_id)
    with pytest.raises(NotFailedError):
        bench.driver.find("acme", live)


def test_retrying_puts_a_job_back_as_it_was_pushed(bench: Any) -> None:
    job = bench.push_failed()
    waiting = bench.push(priority=-32768)
    pushed_at = bench.now_us
    bench.advance(5)
    bench.driver.retry("acme", [job, job])
    rows = {row.id: row for row in bench.claim().rows}
    assert list(rows) == [waiting, job]
    row = rows[job]
    assert (row.attempts, row.exceptions, row.lapses, row.last_error, row.failed_us) == (1, 0, 0, None, None)
    assert (row.due_us, row.retried_us, row.pushed_us) == (bench.now_us, bench.now_us, pushed_at)


def test_a_retried_job_is_no_longer_its_last_deliverys(bench: Any) -> None:
    bench.push()
    (key,) = bench.take()
    bench.fail(key)
    bench.driver.retry("acme", [key.id])
    assert not bench.release(key)
    assert not bench.fail(key)


@pytest.mark.parametrize("call", ["retry", "forget"])
def test_lists_of_ids_are_all_or_nothing_and_name_the_index(bench: Any, call: str) -> None:
    parked, foreign, live = bench.push_failed(), bench.push_failed(tenant="globex"), bench.push()
    for wrong, error in [(foreign, JobNotFoundError), (live, NotFailedError)]:
        with pytest.raises(error) as caught:
            getattr(bench.driver, call)("acme", [parked, wrong])
        assert caught.value.index == 1
    assert bench.counts() == (1, 0, 0, 2)


def test_forgetting_says_how_many(bench: Any) -> None:
    first, second = bench.push_failed(), bench.push_failed()
    assert bench.driver.forget("acme", [first, second, first]) == 2
    assert bench.counts() == (0, 0, 0, 0)


def test_pruning_removes_what_failed_longer_ago_and_flushing_all(bench: Any) -> None:
    bench.push_failed()
    bench.advance(10)
    bench.push_failed()
    bench.push()
    assert bench.driver.prune(10_000_000) == 0
    bench.now_us += 1
    assert bench.driver.prune(10_000_000) == 1
    assert bench.driver.prune(None) == 1
    assert bench.counts() == (1, 0, 0, 0)


def test_clearing_keeps_failed_jobs_and_ends_deliveries(bench: Any) -> None:
    bench.push_failed()
    bench.push()
    bench.push(delay_s=5)
    bench.push(queue="other")
    (key,) = bench.take()
    bench.push()
    assert bench.driver.clear("default") == 3
    assert bench.counts() == (0, 0, 0, 1)
    assert bench.counts("other") == (1, 0, 0, 0)
    assert not bench.release(key)


def test_a_lock_belongs_to_its_owner_until_it_ends(bench: Any) -> None:
    assert bench.driver.lock("lock:a", "me", 10_000_000)
    assert not bench.driver.lock("lock:a", "you", 10_000_000)
    bench.advance(5)
    assert bench.driver.lock("lock:a", "me", 10_000_000)
    bench.advance(9)
    assert not bench.driver.lock("lock:a", "you", 10_000_000)
    assert not bench.driver.unlock("lock:a", "you")
    bench.advance(1)
    assert not bench.driver.unlock("lock:a", "me")
    assert bench.driver.lock("lock:a", "you", 10_000_000)
    assert bench.driver.unlock("lock:a", "you")
    assert bench.driver.lock("lock:a", "me", 10_000_000)


def test_a_counter_lives_from_its_first_increment(bench: Any) -> None:
    end = bench.now_us + 10_000_000
    assert bench.driver.increment("counter:a", 0, 10_000_000)[0] == 0
    assert bench.driver.increment("counter:a", 2, 10_000_000) == (2, end)
    bench.advance(9)
    assert bench.driver.increment("counter:a", 3, 10_000_000) == (5, end)
    assert bench.driver.increment("counter:a", 0, 10_000_000) == (5, end)
    bench.advance(1)
    assert bench.driver.increment("counter:a", 0, 10_000_000)[0] == 0
    assert bench.driver.increment("counter:a", 1, 10_000_000) == (1, bench.now_us + 10_000_000)


def test_a_flag_is_kept_for_its_time_or_for_good(bench: Any) -> None:
    bench.driver.write_flag("flag:a", "x", 1_000_000)
    bench.driver.write_flag("flag:b", "é", None)
    assert bench.driver.read_flag("flag:a") == "x"
    bench.advance(1)
    assert bench.driver.read_flag("flag:a") is None
    assert bench.driver.rescue() == 0
    assert bench.driver.read_flag("flag:b") == "é"
    bench.driver.write_flag("flag:b", "z", None)
    assert bench.driver.read_flag("flag:b") == "z"
    bench.driver.erase_flag("flag:b")
    assert bench.driver.read_flag("flag:b") is None


def test_waiting_ends_at_once_when_something_is_due(bench: Any) -> None:
    bench.push()
    started = monotonic()
    assert bench.driver.wait(["other", "default"], 10)
    assert monotonic() - started < 5


def test_waiting_for_a_paused_or_empty_queue_takes_its_time(bench: Any) -> None:
    bench.push()
    bench.driver.pause("default")
    assert not bench.driver.wait(["default", "other"], 0.02)


def test_waiting_ends_when_another_thread_pushes(bench: Any) -> None:
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(bench.driver.wait(["default"], 30)))
    started = monotonic()
    thread.start()
    bench.push(queue="other")
    bench.push()
    thread.join()
    assert woken == [True]
    assert monotonic() - started < 10


def test_the_driver_answers_for_itself(bench: Any) -> None:
    assert bench.driver.ping()
    assert bench.driver.now() == bench.now_us
    bench.driver.close()
    bench.driver.close()
    assert bench.push()
