from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hesape import times


@pytest.mark.parametrize("delay", [0, 0.02])
def test_equal_times_keep_the_order_of_their_pushes(desk: Any, delay: float, poll: Any) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=delay)
    jobs = [desk.job({"n": n}, run_at=moment) for n in range(120)]
    desk.queue.bulk(desk.grant, jobs[:60])
    for job in jobs[60:]:
        desk.queue.push(desk.grant, job)
    end = times.to_us(moment)
    poll(lambda: desk.driver.now() > end, "they are due")
    assert desk.numbers() == list(range(120))


def test_an_old_job_isnt_overtaken_by_newer_ones(desk: Any) -> None:
    desk.push({"n": "old"})
    for n in range(50):
        desk.push({"n": n})
        if n == 0:
            assert desk.take().decode() == {"n": "old"}


def test_priority_comes_first_down_to_the_least_and_the_greatest(desk: Any) -> None:
    for priority in (32767, 0, -32768, 100, -1, 1):
        desk.push({"n": priority}, priority=priority)
    assert desk.numbers() == [-32768, -1, 0, 1, 100, 32767]


def test_a_job_due_in_the_year_9999_keeps_its_microsecond(desk: Any) -> None:
    moment = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    desk.push(run_at=moment)
    [later] = [desk.claim().next_due_us]
    assert later == times.to_us(moment)


def test_a_job_due_in_the_year_1_is_due_now(desk: Any) -> None:
    before = desk.driver.now()
    desk.push(run_at=datetime(1, 1, 1, tzinfo=UTC))
    [row] = desk.claim().rows
    assert before <= row.due_us <= desk.driver.now()


def test_the_next_due_time_is_exact_although_scores_arent(desk: Any) -> None:
    moment = datetime(2300, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    desk.push(run_at=moment + timedelta(days=1))
    desk.push(run_at=moment)
    assert desk.claim().next_due_us == times.to_us(moment)


def test_the_oldest_pending_job_is_found_under_any_priority(desk: Any) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - it repeats a failure
    chance = random.Random(seed)
    for _ in range(40):
        desk.push(priority=chance.randrange(0, 150))
    assert desk.queue.pop(n=5) != []
    oldest = desk.queue.oldest_pending()
    assert oldest == min(job.run_at for job in desk.queue.pop(n=100))
    assert desk.queue.oldest_pending() is None


def test_more_than_a_thousand_due_jobs_are_all_in_line_before_a_claim(desk: Any, poll: Any) -> None:
    desk.bulk(2_500, run_at=datetime.now(UTC) + timedelta(seconds=0.2), priority=50)
    last = desk.push({"n": "first"}, run_at=datetime.now(UTC) + timedelta(seconds=0.3), priority=1)
    end = times.to_us(last.run_at)
    poll(lambda: desk.driver.now() > end, "they are due")
    assert desk.take().decode() == {"n": "first"}


def test_a_repeated_claim_answers_in_the_same_order(desk: Any) -> None:
    from hesape.records import Claim, new_token

    for n in range(30):
        desk.push({"n": n}, queue="ab"[n % 2], priority=n % 3)
    claim = Claim(("b", "a"), 25, 60_000_000, new_token(), "worker")
    first = desk.driver.reserve(claim)
    assert desk.driver.reserve(claim).rows == first.rows
    assert desk.driver.reserve(claim._replace(repeat=True)).rows == first.rows
