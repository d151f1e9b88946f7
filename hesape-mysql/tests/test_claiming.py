from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

import hesape
from hesape import times
from hesape.driver import PROMOTED_AT_ONCE
from hesape.errors import LeaseLostError
from hesape.grants import Grant
from hesape.queue import Queue
from hesape.records import Claim, Claimed, Key, new_token
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.pool import OwnSession
from hesape_mysql.records import text
from hesape_mysql.statements import CLAIM, Statements
from hesape_mysql.testing import MySQLHarness

MINUTE_US = 60_000_000


@contextmanager
def trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is sent inside the block, one entry a round trip."""
    sent: list[str] = []
    ask = OwnSession.ask

    def counted(self: OwnSession, sql: str, *, commits: bool = False) -> Any:
        sent.append(sql)
        return ask(self, sql, commits=commits)

    with monkeypatch.context() as patched:
        patched.setattr(OwnSession, "ask", counted)
        yield sent


def claim(
    driver: MySQLDriver, n: int = 1, queues: tuple[str, ...] = ("default",), done: tuple[Key, ...] = ()
) -> Claimed:
    return driver.reserve(Claim(queues, n, MINUTE_US, new_token(), "", done))


def jobs(grant: Grant, number: int, **how: Any) -> list[hesape.Job]:
    return [hesape.Job.new(grant, "n", {"n": n}, **how) for n in range(number)]


def test_a_claim_with_deletions_is_two_round_trips(queue: Queue, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.bulk(grant, jobs(grant, 100))
    token = new_token()
    first = queue.driver.reserve(Claim(("default",), 50, MINUTE_US, token))
    with trips(monkeypatch) as sent:
        second = claim(queue.driver, 50, done=tuple(Key(row.id, token) for row in first.rows))  # type: ignore[arg-type]
    assert len(sent) == 2
    assert (len(second.rows), second.lost, queue.counts().size) == (50, [], 50)


def test_what_fell_due_costs_two_more(queue: Queue, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.later(grant, 0.01, hesape.Job.new(grant, "n"))
    assert queue.driver.wait(["default"], 5)
    with trips(monkeypatch) as sent:
        assert len(queue.pop()) == 1
    assert len(sent) == 4


def test_a_bulk_is_one_round_trip_for_500_jobs(queue: Queue, grant: Grant, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.queues()
    with trips(monkeypatch) as sent:
        queue.bulk(grant, jobs(grant, 500))
    assert len(sent) == 1
    with trips(monkeypatch) as sent:
        queue.bulk(grant, jobs(grant, 1_001))
    assert len(sent) == 4, "three, and one for the moment that they share"
    with trips(monkeypatch) as sent:
        queue.push(grant, hesape.Job.new(grant, "n"))
    assert len(sent) == 1


def test_several_queues_are_drained_in_order_and_share_the_limit(queue: Queue, grant: Grant) -> None:
    for name in ("c", "b", "a"):
        queue.bulk(grant, jobs(grant, 3, queue=name))
    queue.operator().pause("a")
    found = queue.pop(["a", "b", "c"], n=5)
    assert [(job.queue, job.decode()["n"]) for job in found] == [("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]
    assert queue.counts("c").pending == 1


def test_no_priority_waits_behind_a_full_share_of_promotions(queue: Queue, grant: Grant) -> None:
    queue.bulk(grant, jobs(grant, PROMOTED_AT_ONCE + 500, run_at=soon(queue)))
    urgent = hesape.Job.new(grant, "n", {"n": "urgent"}, priority=-5, run_at=soon(queue))
    queue.push(grant, urgent)
    while queue.counts().delayed:
        time.sleep(0.05)
    assert queue.pop()[0].id == urgent.id


def soon(queue: Queue) -> datetime:
    return times.from_us(queue.driver.now() + 1_500_000)


def test_a_stale_delivery_among_the_done_is_lost_and_its_job_stays(queue: Queue, grant: Grant) -> None:
    queue.bulk(grant, jobs(grant, 2))
    stale, current = new_token(), new_token()
    old = queue.driver.reserve(Claim(("default",), 1, 1, stale)).rows[0]
    rows = queue.driver.reserve(Claim(("default",), 2, MINUTE_US, current)).rows
    other = next(row for row in rows if row.id != old.id)
    done = (Key(old.id, stale), Key(other.id, current))
    answer = claim(queue.driver, done=done)  # type: ignore[arg-type]
    assert answer.lost == [Key(old.id, stale)]
    assert queue.counts().reserved == 1
    assert queue.driver.delete_jobs([]) == []


def test_a_row_that_somebody_has_locked_is_passed_over(
    queue: Queue, grant: Grant, connect: Callable[..., Any], namespace: str
) -> None:
    first, _ = queue.bulk(grant, jobs(grant, 2))
    conn = connect()
    with conn.cursor() as cursor:
        cursor.execute(
            f"select id from {namespace}_jobs where id = unhex(replace(%s, '-', '')) for update", (first.id,)
        )
        start = time.monotonic()
        assert [job.decode()["n"] for job in queue.pop(n=2)] == [1]
        assert time.monotonic() - start < 1
    conn.rollback()
    assert [job.decode()["n"] for job in queue.pop(n=2)] == [0]


@pytest.mark.parametrize("number", [2, 3_000])
def test_the_claim_reads_its_index_in_order(
    queue: Queue, grant: Grant, connect: Callable[..., Any], namespace: str, number: int
) -> None:
    queue.bulk(grant, jobs(grant, number))
    with connect().cursor() as cursor:
        cursor.execute(f"explain {Statements(f'{namespace}_')[CLAIM] % {'queue': text('default'), 'n': 10}}")
        plan = cursor.fetchall()[0]
    assert "line" in plan
    assert "filesort" not in str(plan)


def test_jobs_that_are_not_due_cost_nothing(queue: Queue, grant: Grant, harness: MySQLHarness, namespace: str) -> None:
    """200,000 scheduled, 100,000 failed, 10,000 due: within twice of a store without them (O2, case 43)."""
    alone = pace(queue, grant)
    queue.later(grant, 3600, hesape.Job.new(grant, "n"))
    table = f"{namespace}_jobs"
    copy = (
        f"insert into {table}"
        " (id, queue, state, place, at_us, seq, priority, due_us, pushed_us, tenant, name, envelope)"
        " select unhex(md5(concat('{what}', seq.seq))), queue, {state}, 0, {at}, 1, 100, due_us, pushed_us, tenant,"
        f" name, envelope from {table}, seq_1_to_{{number}} as seq where {table}.id = (select min(id) from {table})"
    )
    later = "at_us + 3600000000 + seq.seq"
    with harness.connect(autocommit=True) as conn, conn.cursor() as cursor:
        cursor.execute(copy.format(what="later", state=1, at=later, number=200_000))
        cursor.execute(copy.format(what="failed", state=3, at="at_us - seq.seq", number=100_000))
    assert (queue.counts().delayed, queue.counts().failed) == (200_001, 100_000)
    assert min(pace(queue, grant) for _ in range(4)) < 2 * alone + 0.001


def pace(queue: Queue, grant: Grant) -> float:
    """The median time of a pop, empty ones among them."""
    took = []
    for _ in range(5):
        queue.bulk(grant, jobs(grant, 20))
        for _ in range(24):
            start = time.perf_counter()
            found = queue.pop()
            took.append(time.perf_counter() - start)
            for job in found:
                job.delete()
    return sorted(took)[len(took) // 2]


def test_a_lost_lease_says_so_under_every_way_to_settle(queue: Queue, grant: Grant) -> None:
    queue.push(grant, hesape.Job.new(grant, "n"))
    [job] = queue.pop(lease=0.05)
    assert queue.driver.wait(["default"], 5)
    [again] = queue.pop()
    for settle in (job.release, job.fail, job.delete):
        with pytest.raises(LeaseLostError):
            settle()
    again.delete()
    assert queue.counts().size == 0


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
def test_a_forged_count_stops_no_claim(
    queue: Queue, driver: MySQLDriver, grant: Grant, harness: MySQLHarness, namespace: str, number: int
) -> None:
    queue.bulk(grant, jobs(grant, 2))
    with harness.connect(autocommit=True) as conn, conn.cursor() as cursor:
        cursor.execute(f"update {namespace}_jobs set attempts = %s, lapses = %s", (number, number))
    assert len(driver.reserve(Claim(("default",), 2, 1, new_token())).rows) == 2
    again = driver.reserve(Claim(("default",), 2, MINUTE_US, new_token(), "w"))
    assert len(again.rows) == 2
    assert driver.retire("w") == 2
    popped = queue.pop(n=2)
    assert [job.attempts for job in popped] == [row["attempts"] for row in harness.raw(namespace).rows()]
