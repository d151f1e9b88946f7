"""Order, leases, pausing and the one atomic step of a claim, on both embedded stores."""

from __future__ import annotations

from typing import Any

import pytest

from hesape.records import new_token


def test_jobs_are_handed_out_by_priority_then_due_time_then_push_order(bench: Any) -> None:
    late, early = bench.push(priority=5, delay_s=2), bench.push(priority=5, delay_s=1)
    equal = bench.store(*(bench.row() for _ in range(5)))
    bench.advance(3)
    assert bench.ids() == [early, late, *equal]


def test_a_past_run_at_does_not_jump_the_queue(bench: Any) -> None:
    first = bench.push()
    bench.advance(1)
    second = bench.push(run_at_us=bench.now_us - 10_000_000)
    assert bench.ids() == [first, second]


def test_a_job_is_delayed_until_the_very_microsecond_that_it_is_due(bench: Any) -> None:
    job = bench.push(delay_s=10)
    bench.now_us += 9_999_999
    assert bench.ids() == []
    assert bench.counts() == (0, 1, 0, 0)
    bench.now_us += 1
    assert bench.counts() == (1, 0, 0, 0)
    assert bench.ids() == [job]


def test_several_queues_are_drained_strictly_in_the_order_named(bench: Any) -> None:
    low, high = bench.push(queue="low", priority=-5), bench.push(queue="high", priority=5)
    assert bench.ids(queues=("high", "low", "high")) == [high, low]


def test_a_claim_takes_at_most_n_over_all_its_queues(bench: Any) -> None:
    for queue in ("a", "a", "b", "b"):
        bench.push(queue=queue)
    assert [row.queue for row in bench.claim(3, queues=("b", "a")).rows] == ["b", "b", "a"]


def test_a_row_comes_back_with_all_that_was_stored(bench: Any) -> None:
    pushed = bench.row(payload='{"é":"\U0001f600"}'.encode(), priority=-7)
    bench.store(pushed)
    (row,) = bench.claim(lease_s=5).rows
    assert (row.id, row.envelope, row.tenant, row.name) == (pushed.id, pushed.envelope, "acme", "name")
    assert (row.queue, row.priority, row.due_us, row.pushed_us) == ("default", -7, bench.now_us, bench.now_us)
    assert (row.attempts, row.lapses, row.exceptions, row.last_error) == (1, 0, 0, None)
    assert (row.reserved_until_us, row.retried_us, row.failed_us) == (bench.now_us + 5_000_000, None, None)


def test_a_paused_queue_gives_nothing_until_it_is_resumed(bench: Any) -> None:
    job = bench.push()
    bench.push(queue="other", delay_s=5)
    bench.driver.pause("default")
    bench.driver.pause("default")
    claimed = bench.claim(queues=("default", "other"))
    assert (claimed.rows, claimed.paused) == ([], {"default"})
    bench.driver.resume("default")
    assert bench.ids(queues=("default", "other")) == [job]


def test_a_claim_says_when_the_next_job_falls_due_of_queues_that_are_not_paused(bench: Any) -> None:
    start = bench.now_us
    bench.push(delay_s=9)
    bench.push(queue="paused", delay_s=1)
    bench.driver.pause("paused")
    assert bench.claim().next_due_us == start + 9_000_000
    assert bench.claim(queues=("paused", "default")).next_due_us == start + 9_000_000
    assert bench.claim(queues=("none",)).next_due_us is None


def test_the_same_claim_again_returns_the_same_batch_and_spends_no_attempt(bench: Any) -> None:
    token = new_token()
    for queue in ("b", "a", "a", "a"):
        bench.push(queue=queue)
    first = bench.claim(3, queues=("a", "b"), token=token, worker="w").rows
    assert bench.claim(3, queues=("a", "b"), token=token, worker="w", repeat=True).rows == first
    assert bench.claim(3, queues=("a", "b"), token=token, worker="w").rows == first
    assert bench.counts("b") == (1, 0, 0, 0)


def test_a_claim_deletes_what_is_done_and_says_what_was_lost(bench: Any) -> None:
    bench.store(*(bench.row() for _ in range(4)))
    gone, lost = bench.take(), bench.take(lease_s=1)
    bench.advance(2)
    claimed = bench.claim(1, done=[*gone, *lost], lease_s=60)
    assert claimed.lost == lost
    assert [row.id for row in claimed.rows] == [lost[0].id]
    assert bench.counts() == (2, 0, 1, 0)


def test_with_repeat_what_is_absent_counts_as_deleted(bench: Any) -> None:
    bench.push()
    done = bench.take()
    assert bench.claim(done=done).lost == []
    assert bench.claim(done=done).lost == done
    assert bench.claim(done=done, repeat=True).lost == []


def test_a_repeated_claim_still_says_what_another_delivery_holds(bench: Any) -> None:
    bench.push()
    lost = bench.take(lease_s=1)
    bench.advance(2)
    bench.take()
    assert bench.claim(done=lost, repeat=True).lost == lost


def test_more_than_a_thousand_due_jobs_are_promoted_before_anything_is_claimed(bench: Any) -> None:
    bench.store(*(bench.row(delay_s=1 + index / 1_000) for index in range(2_500)))
    urgent = bench.push(priority=1, delay_s=9)
    bench.advance(10)
    assert bench.ids(1) == [urgent]
    assert bench.counts() == (2_500, 0, 1, 0)


def test_more_than_a_thousand_expired_leases_are_promoted_before_anything_is_claimed(bench: Any) -> None:
    bench.store(*(bench.row() for _ in range(2_200)))
    bench.take(2_200, lease_s=1)
    bench.push(priority=200)
    bench.advance(2)
    rows = bench.claim(2_201).rows
    assert len(rows) == 2_201
    assert {(row.attempts, row.lapses) for row in rows[:-1]} == {(2, 1)}
    assert rows[-1].priority == 200


def test_an_expired_lease_makes_the_job_due_again_in_the_same_place(bench: Any) -> None:
    first, second = bench.store(bench.row(), bench.row())
    bench.take(lease_s=1)
    bench.advance(1)
    assert bench.counts() == (2, 0, 0, 0)
    assert bench.ids() == [first, second]


def test_a_delivery_ends_at_the_very_microsecond_of_its_lease(bench: Any) -> None:
    bench.push()
    (key,) = bench.take(lease_s=1)
    bench.now_us += 999_999
    assert bench.driver._extend([key], 0) == [bench.now_us + 1]
    bench.now_us += 1
    assert bench.driver._extend([key], 5_000_000) == [None]
    assert not bench.release(key)
    assert not bench.fail(key)
    assert bench.driver._delete([key], repeat=False, tx=None) == [key]


def test_lapses_count_deliveries_without_an_outcome_and_any_outcome_resets_them(bench: Any) -> None:
    bench.push()
    for _ in range(3):
        bench.take(lease_s=1)
        bench.advance(2)
    (key,) = bench.take()
    assert bench.release(key)
    (row,) = bench.claim().rows
    assert (row.attempts, row.lapses) == (5, 0)


def test_a_released_job_goes_behind_its_equals(bench: Any) -> None:
    first, second, third = bench.store(*(bench.row() for _ in range(3)))
    (key,) = bench.take()
    assert bench.release(key)
    assert bench.ids() == [second, third, first]


def test_a_job_that_never_started_goes_back_to_its_place_with_its_attempt(bench: Any) -> None:
    first, second, third = bench.store(*(bench.row() for _ in range(3)))
    keys = bench.take(2)
    stale = bench.driver._hand_back(keys)
    assert stale is None
    rows = bench.claim().rows
    assert [(row.id, row.attempts, row.lapses) for row in rows] == [(first, 1, 0), (second, 1, 0), (third, 1, 0)]
    assert not bench.release(keys[0])
    bench.driver._hand_back(keys)
    assert bench.counts() == (0, 0, 3, 0)


@pytest.mark.parametrize("queues", [("a",), ("a", "b")])
def test_an_empty_claim_changes_nothing(bench: Any, queues: tuple[str, ...]) -> None:
    claimed = bench.claim(queues=queues)
    assert (claimed.rows, claimed.lost, claimed.paused) == ([], [], set())
    assert (claimed.now_us, claimed.next_due_us) == (bench.now_us, None)
    assert bench.driver.queues() == []
