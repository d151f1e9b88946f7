from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Key, new_token
from hesape_postgres.driver import PostgresDriver
from hesape_postgres.marks import SLOW_S, Marks
from hesape_postgres.testing import PrivatePostgres

GRANT = system_grant("run", "acme")
MINUTE_US = 60_000_000
NOW_US = 1_000_000
Db = psycopg.Connection[tuple[Any, ...]]

FILL = """
insert into hesape_jobs (id, queue, tenant, name, envelope, state, priority, due_us, pushed_us, failed_us)
select gen_random_uuid(), 'default', 'acme', 'n', '\\x00', %(state)s, n %% 100, 4000000000000000 + n, 1,
  case %(state)s when 3 then n end
from generate_series(1, %(count)s) n
"""


def jobs(count: int, **options: Any) -> list[Job]:
    return [Job.new(GRANT, "n", {"n": n}, **options) for n in range(count)]


def claim(n: int = 1, **options: Any) -> Claim:
    return Claim(**{"queues": ("default",), "n": n, "lease_us": MINUTE_US, "token": new_token(), **options})


def took(driver: PostgresDriver, rounds: int, n: int) -> float:
    """The time of a quick claim (the lower quartile) that also deletes the one before, in seconds."""
    times: list[float] = []
    done: tuple[Key, ...] = ()
    for _ in range(rounds):
        wanted = claim(n, done=done)
        start = time.perf_counter()
        found = driver.reserve(wanted)
        times.append(time.perf_counter() - start)
        assert len(found.rows) == n
        assert not found.lost
        done = tuple(Key(row.id, wanted.token) for row in found.rows)
    return statistics.quantiles(times, n=4)[0]


def emptily(driver: PostgresDriver, rounds: int) -> float:
    """The time of a quick claim that finds nothing."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        assert driver.reserve(claim(queues=("nothing", "default"))).rows == []
        times.append(time.perf_counter() - start)
    return statistics.quantiles(times, n=4)[0]


def test_scheduled_and_failed_jobs_cost_a_claim_nothing(queue: Queue, driver: PostgresDriver, db: Db) -> None:
    queue.counts()
    emptily(driver, 50)
    nothing = emptily(driver, 100)
    queue.bulk(GRANT, jobs(200))
    few = took(driver, 150, 1)
    queue.operator().clear("default")
    db.execute(FILL, {"state": 1, "count": 200_000})
    db.execute(FILL, {"state": 3, "count": 100_000})
    db.execute("analyze hesape_jobs")
    among = min(emptily(driver, 50) for _ in range(4))  # a busy machine is no fault of the claim
    queue.bulk(GRANT, jobs(200))
    many = min(took(driver, 40, 1) for _ in range(4))
    assert many < max(2 * few, 0.002), (few, many)
    assert among < max(2 * nothing, 0.002), (nothing, among)
    start = time.monotonic()
    assert driver.queues() == ["default"]
    assert driver.oldest_pending("default") is not None
    assert time.monotonic() - start < 1


@pytest.fixture
def snapshot(postgres: PrivatePostgres) -> Iterator[Callable[[], object]]:
    """Holds a snapshot, as a backup or a report does, so that no dead row can be removed."""
    with psycopg.connect(postgres.url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield lambda: conn.execute("select count(*) from pg_class")
        conn.rollback()


def test_a_held_snapshot_slows_a_drain_little(queue: Queue, driver: PostgresDriver, snapshot: Any) -> None:
    def pass_through(total: int) -> float:
        for _ in range(total // 5_000):
            queue.bulk(GRANT, jobs(5_000))
        start = time.monotonic()
        took(driver, total // 50, 50)
        driver.reserve(claim(50))
        return time.monotonic() - start

    pass_through(5_000)
    free = pass_through(5_000)
    snapshot()
    pass_through(20_000)
    held = pass_through(5_000)
    assert held < max(3 * free, 1.0), (free, held)


def test_a_mark_hides_no_job_of_a_lower_priority(queue: Queue, driver: PostgresDriver) -> None:
    queue.bulk(GRANT, jobs(50, priority=10))
    wanted = claim(5)
    found = driver.reserve(wanted).rows
    driver._marks._slow.add("default")
    driver._marks.drop(["default"])
    assert driver._marks.learn(
        ["default"], found, full=True, promoted=False, now_us=NOW_US, started=time.monotonic() - 1
    )
    assert driver._marks._marks
    driver._hand_back([Key(row.id, wanted.token) for row in found[:2]])
    assert not driver._marks._marks
    assert [row.id for row in driver.reserve(claim(3)).rows][:2] == [row.id for row in found[:2]]
    driver._marks._slow.add("default")
    driver._marks.drop(["default"])
    assert driver._marks.learn(
        ["default"], found, full=True, promoted=False, now_us=NOW_US, started=time.monotonic() - 1
    )
    queue.push(GRANT, Job.new(GRANT, "n", priority=11))
    assert driver._marks._marks  # it comes after the mark
    first = queue.push(GRANT, Job.new(GRANT, "n", priority=9))
    assert [job.id for job in queue.pop()] == [first.id]


def test_a_mark_that_another_process_must_drop_is_dropped(
    queue: Queue, driver: PostgresDriver, opened: Callable[..., PostgresDriver]
) -> None:
    queue.bulk(GRANT, jobs(50, priority=10))
    found = driver.reserve(claim(5)).rows
    driver._marks._slow.add("default")
    driver._marks.drop(["default"])
    assert driver._marks.learn(
        ["default"], found, full=True, promoted=False, now_us=NOW_US, started=time.monotonic() - 1000
    )
    driver._marks._marks["default"] = driver._marks._marks["default"]._replace(until=time.monotonic() + 1000)
    assert driver.reserve(claim(queues=("nothing",))).rows == []  # whoever has a mark listens
    first = Queue(opened()).push(GRANT, Job.new(GRANT, "n", priority=9))
    deadline = time.monotonic() + 10
    while driver._marks._marks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [job.id for job in queue.pop()] == [first.id]


def test_marks_end_by_themselves() -> None:
    marks = Marks()
    row = ("id", b"", "acme", "n", "q", 10, 77, *[0] * 8)
    now = time.monotonic()
    nothing = {"priorities": "{-32768}", "dues": "{0}", "floors": "{0}"}
    assert marks.starts(["q"], now) == nothing
    assert not marks.learn(["q"], [row], full=True, promoted=False, now_us=NOW_US, started=now)  # it was quick
    assert not marks.learn(["q"], [row], full=True, promoted=False, now_us=NOW_US, started=now - 2 * SLOW_S)  # for once
    assert marks.learn(["q"], [row], full=True, promoted=False, now_us=NOW_US, started=now - 2 * SLOW_S)
    expected = {"priorities": "{-32768,10}", "dues": "{0,77}", "floors": "{0,800000}"}
    assert marks.starts(["r", "q"], now) == expected
    marks.came("q", 5, delay_us=1)
    assert marks.starts(["r", "q"], now) == expected | {"floors": "{0,0}"}
    assert marks.starts(["q"], now + 60) == nothing
    for full, promoted in ((False, False), (True, True)):
        marks.learn(["q"], [row], full=True, promoted=False, now_us=NOW_US, started=now - 2 * SLOW_S)
        assert not marks.learn(
            ["q"], [row] if full else [], full=full, promoted=promoted, now_us=NOW_US, started=now - 1
        )
        assert marks.starts(["q"], now) == nothing


def test_what_a_claim_promotes_itself_isnt_before_its_mark(queue: Queue, driver: PostgresDriver) -> None:
    pushed = queue.bulk(GRANT, jobs(6, priority=10))
    found = driver.reserve(claim(3, lease_us=50_000)).rows
    driver._marks._slow.add("default")
    driver._marks.drop(["default"])
    assert driver._marks.learn(
        ["default"], found, full=True, promoted=False, now_us=NOW_US, started=time.monotonic() - 1000
    )
    while driver.now() <= (found[0].reserved_until_us or 0):
        time.sleep(0.01)
    assert [job.id for job in queue.pop(n=6)] == [job.id for job in pushed]
