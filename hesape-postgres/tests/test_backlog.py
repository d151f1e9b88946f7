from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Claimed, Key, new_token
from hesape_postgres import claiming, records
from hesape_postgres.claim_statements import STEP, STEP_MARKED
from hesape_postgres.driver import PostgresDriver
from hesape_postgres.marks import LEASES_S, LONGEST_S, SLOW_S, WORSE, Mark, Marks
from hesape_postgres.testing import PrivatePostgres

GRANT = system_grant("run", "acme")
MINUTE_US = 60_000_000
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
    assert many < max(2 * few, 0.005), (few, many)
    assert among < max(2 * nothing, 0.005), (nothing, among)
    start = time.monotonic()
    assert driver.queues() == ["default"]
    assert driver.oldest_pending("default") is not None
    assert time.monotonic() - start < 1


@pytest.fixture(params=["reader", "writer"])
def snapshot(postgres: PrivatePostgres, request: pytest.FixtureRequest) -> Iterator[Callable[[], object]]:
    """Holds a snapshot, as a backup, a report or an import does, so that no dead row can be removed."""
    with psycopg.connect(postgres.url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield lambda: conn.execute(f"select {'pg_current_xact_id()' if request.param == 'writer' else 1}".encode())
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


def begin_marks(driver: PostgresDriver) -> None:
    """As if two plain claims had been slow: the next one is a marked one."""
    for _ in range(2):
        driver._marks.clocked(["default"], 1.0, time.monotonic())
    assert driver._marks._marks["default"] == Mark(plain_s=1.0, until=driver._marks._marks["default"].until)


def marked(driver: PostgresDriver) -> Mark:
    mark = driver._marks._marks["default"]
    assert mark.server > 0
    return mark


def test_a_marked_claim_passes_over_no_dead_row(queue: Queue, driver: PostgresDriver, snapshot: Any) -> None:
    snapshot()
    queue.bulk(GRANT, jobs(10_000))
    took(driver, 160, 50)
    begin_marks(driver)
    took(driver, 20, 50)
    assert read_by_claim(driver, marked=False) > 9_000
    assert read_by_claim(driver, marked=True) < 1_000


def read_by_claim(driver: PostgresDriver, *, marked: bool) -> int:
    """How many entries of indexes a claim of 50 reads."""
    starts = driver._marks.starts(["default"], time.monotonic())
    assert starts is not None
    params = claiming._params(driver._link, claim(50), ["default"]) | records.keys(())
    statement, params = (STEP_MARKED, params | starts) if marked else (STEP, params)
    table = driver._link.sql.text("{jobs}")
    counted = (
        "select sum(pg_stat_get_xact_tuples_returned(indexrelid))::int from pg_index where indrelid = '{}'::regclass"
    )
    with driver._link.own() as own, own.conn.transaction(force_rollback=True):
        ((before,),) = own.rows(counted.format(table).encode())
        assert len(own.rows(driver._link.sql[statement], params)) == 51
        ((after,),) = own.rows(counted.format(table).encode())
    read: int = after - before
    return read


@pytest.fixture(params=[False, True], ids=["listening", "pooled"])
def two(opened: Callable[..., PostgresDriver], request: pytest.FixtureRequest) -> tuple[PostgresDriver, PostgresDriver]:
    """The drivers of two processes."""
    return opened(pooler=request.param), opened(pooler=request.param)


def test_a_mark_hides_nothing_that_another_process_makes_wait(two: tuple[PostgresDriver, PostgresDriver]) -> None:
    one, other = two
    pushed = [job.id for job in Queue(other).bulk(GRANT, jobs(50, priority=10))]
    held = claim(3)
    assert ids(other.reserve(held)) == pushed[:3]
    begin_marks(one)
    assert ids(one.reserve(claim(5))) == pushed[3:8]
    assert ids(one.reserve(claim(5))) == pushed[8:13]
    mark = marked(one)
    other._hand_back([Key(job_id, held.token) for job_id in pushed[:3]])
    urgent = Queue(other).push(GRANT, Job.new(GRANT, "n", priority=9)).id
    assert ids(one.reserve(claim(6))) == [urgent, *pushed[:3], *pushed[13:15]]
    for _ in range(2):
        assert len(one.reserve(claim(2)).rows) == 2
    assert marked(one) > mark  # it went on from where it was
    later = Queue(other).later(GRANT, 0.1, Job.new(GRANT, "n", priority=8)).id
    until(lambda: ids(one.reserve(claim())) == [later])


def ids(found: Claimed) -> list[str]:
    return [row.id for row in found.rows]


def until(holds: Callable[[], object], within_s: float = 10.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.01)


@pytest.mark.parametrize("delay_s", [0, 0.01], ids=["now", "later"])
def test_a_mark_hides_nothing_that_was_committed_late(
    queue: Queue, driver: PostgresDriver, postgres: PrivatePostgres, delay_s: float
) -> None:
    pushed = [job.id for job in queue.bulk(GRANT, jobs(20))]
    with psycopg.connect(postgres.url) as conn:
        late = queue.later(GRANT, delay_s, Job.new(GRANT, "n", priority=7), tx=conn).id
        begin_marks(driver)
        for n in range(5):
            assert ids(driver.reserve(claim(2))) == pushed[2 * n : 2 * n + 2]
            time.sleep(0.01)
        ripe_us = marked(driver).ripe_us
        conn.commit()
    assert ids(driver.reserve(claim())) == [late]
    assert ripe_us > 0


def test_a_mark_hides_nothing_that_was_locked(queue: Queue, driver: PostgresDriver, db: Db) -> None:
    pushed = [job.id for job in queue.bulk(GRANT, jobs(20))]
    begin_marks(driver)
    with db.transaction(force_rollback=True):
        db.execute("select from hesape_jobs where id = any(%s::uuid[]) for update", (pushed[:2],))
        for n in range(1, 4):
            assert ids(driver.reserve(claim(2))) == pushed[2 * n : 2 * n + 2]
    assert ids(driver.reserve(claim(3))) == [*pushed[:2], pushed[8]]


def test_a_mark_of_another_server_says_nothing(queue: Queue, driver: PostgresDriver) -> None:
    begin_marks(driver)
    assert driver.reserve(claim()).rows == []
    server = marked(driver).server
    driver._marks._marks["default"] = marked(driver)._replace(
        priority=1000, due_us=2**62, ripe_us=2**62, lease_us=2**62, snapshot="999999999:999999999:", server=1
    )
    pushed = [job.id for job in queue.bulk(GRANT, jobs(3))]
    assert ids(driver.reserve(claim(2))) == pushed[:2]
    assert marked(driver).server == server
    assert ids(driver.reserve(claim(2))) == pushed[2:]


def test_marks_begin_when_plain_claims_are_slow_and_end() -> None:
    marks = Marks()
    now = time.monotonic()
    assert marks.starts(["q"], now) is None
    marks.clocked(["q"], SLOW_S * 2, now)
    assert marks.starts(["q"], now) is None  # for once
    marks.clocked(["q"], SLOW_S / 2, now)
    marks.clocked(["q"], SLOW_S * 2, now)
    assert marks.starts(["q"], now) is None
    marks.clocked(["p", "q"], SLOW_S * 2, now)
    assert marks.starts(["p"], now) is None
    assert marks.starts(["q"], now) is not None
    told = {"server": 5, "snapshot": "7:9:7,8", "queues": {"p": [1, 2, 3, 4, 5], "q": [10, 77, 3, 78, 79]}}
    marks.learn(json.dumps(told), SLOW_S, now, now)
    assert marks.starts(["r", "q"], now) == {
        "priorities": "{-32768,10}",
        "dues": f"{{{-(2**63)},77}}",
        "seqs": f"{{{-(2**63)},3}}",
        "ripes": f"{{{-(2**63)},78}}",
        "leases": f"{{{-(2**63)},79}}",
        "snapshots": '{"9223372036854775807:9223372036854775807:","7:9:7,8"}',
        "servers": "{0,5}",
    }
    later = marks.starts(["q"], now + LEASES_S)
    assert later is None or later["leases"] == f"{{{-(2**63)}}}"
    assert marks.starts(["q"], now + LONGEST_S) is None


def test_marks_end_when_claims_are_slow_from_them_too() -> None:
    marks = Marks()
    now = time.monotonic()
    told = json.dumps({"server": 5, "snapshot": "7:9:", "queues": {"q": [10, 77, 3, 78, 79]}})

    def marked_claims(*took_s: float) -> bool:
        for each in took_s:
            marks.learn(told, each, now, now)
        return marks.starts(["q"], now) is not None

    for _ in range(2):
        marks.clocked(["q"], SLOW_S, now)
    assert marked_claims(1.0, 1.0)  # the first began at no place
    assert marked_claims(WORSE * SLOW_S, 1.0, WORSE * SLOW_S, 1.0)
    assert not marked_claims(0.15)
    now += 14.9
    for took_s in (SLOW_S, SLOW_S, 0.0, SLOW_S):
        marks.clocked(["q"], took_s, now)
        assert marks.starts(["q"], now) is None
    now += 0.2
    marks.clocked(["q"], SLOW_S, now)
    assert marks.starts(["q"], now) is not None


def test_an_open_bulk_beside_a_held_snapshot_slows_claims_for_a_moment_only(
    queue: Queue, driver: PostgresDriver, schema: str, postgres: PrivatePostgres
) -> None:
    queue.bulk(GRANT, jobs(1_000))
    plain = took(driver, 10, 10)
    with psycopg.connect(postgres.url, options=f"-c search_path={schema}") as conn:
        conn.execute(FILL.replace("n %% 100", "1000"), {"state": 0, "count": 20_000})
        for _ in range(2):
            driver._marks.clocked(["default"], SLOW_S, time.monotonic())
        for _ in range(3):
            assert driver._marks.starts(["default"], time.monotonic()) is not None
            driver.reserve(claim())
        assert driver._marks.starts(["default"], time.monotonic()) is None
        assert took(driver, 10, 10) < max(2 * plain, SLOW_S)


def test_a_large_claim_and_one_that_waits_are_not_slow(
    queue: Queue, driver: PostgresDriver, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    monkeypatch.setattr(driver._marks, "clocked", lambda _queues, took_s, _now: times.append(took_s))
    queue.bulk(GRANT, jobs(5_005))
    took(driver, 5, 1_000)
    assert min(times) < SLOW_S  # one may be slow on a busy machine
    first = claim(5)
    held_jobs = ids(driver.reserve(first))
    times.clear()
    for held in held_jobs:
        waiting = threading.Thread(target=driver.reserve, args=(claim(done=(Key(held, first.token),)),))
        with db.transaction():
            db.execute("select from hesape_jobs where id = %s for update", (held,))
            waiting.start()
            until(lambda: db.execute("select from pg_locks where not granted").rowcount)
            time.sleep(4 * SLOW_S)
        waiting.join()
    assert len(times) == 5
    assert min(times) < SLOW_S


def test_ends_of_leases_are_found_behind_a_mark(queue: Queue, driver: PostgresDriver) -> None:
    pushed = [job.id for job in queue.bulk(GRANT, jobs(6, priority=10))]
    begin_marks(driver)
    taken = driver.reserve(claim(3, lease_us=50_000)).rows
    assert driver.reserve(claim(1)).rows[0].id == pushed[3]
    until(lambda: driver.now() > (taken[0].reserved_until_us or 0))
    assert ids(driver.reserve(claim(6))) == [*pushed[:3], *pushed[4:]]
    assert marked(driver).priority == 10


@pytest.mark.parametrize("slow_claims", [0, 2], ids=["plain", "marked"])
def test_a_job_that_was_released_with_a_delay_meanwhile_is_left_to_its_delay(
    two: tuple[PostgresDriver, PostgresDriver], db: Db, slow_claims: int
) -> None:
    one, other = two
    (held,) = [job.id for job in Queue(one).bulk(GRANT, jobs(1))]
    first = claim()
    assert ids(one.reserve(first)) == [held]
    if slow_claims:
        begin_marks(one)
        assert ids(one.reserve(claim())) == []
        one._marks._marks["default"] = marked(one)._replace(ripe_us=2**62)  # as true: it saw no scheduled job
    due_us = one.now() + 10_000
    later = Queue(other).later(GRANT, 0.01, Job.new(GRANT, "n")).id
    until(lambda: one.now() > due_us + 100_000)
    found: list[Claimed] = []
    claiming_one = threading.Thread(target=lambda: found.append(one.reserve(claim(done=(Key(held, first.token),)))))
    with db.transaction():
        db.execute("select from hesape_jobs where id = %s for update", (held,))
        claiming_one.start()  # its snapshot is taken, and it waits for the row to delete
        until(lambda: db.execute("select from pg_locks where not granted").rowcount)
        meanwhile = claim()
        assert ids(other.reserve(meanwhile)) == [later]
        assert other._release(
            Key(later, meanwhile.token), delay_us=MINUTE_US, spent=False, error=None, exceptions=0, tx=None
        )
    claiming_one.join()
    assert ids(found[0]) == []
    assert db.execute("select state from hesape_jobs").fetchall() == [(1,)]


def test_a_mark_ends_with_a_crash_of_the_server(opened: Callable[..., PostgresDriver]) -> None:
    with PrivatePostgres() as server:
        driver = opened(url=server.url)
        Queue(driver).counts()
        begin_marks(driver)
        assert driver.reserve(claim()).rows == []
        before = marked(driver)
        with pytest.raises(psycopg.OperationalError), psycopg.connect(server.url) as conn:  # noqa: PT012
            os.kill(conn.info.backend_pid, signal.SIGKILL)
            conn.execute("select 1")
        until(lambda: up(server))
        driver.reserve(claim())
        assert marked(driver).server > before.server


def up(server: PrivatePostgres) -> bool:
    try:
        psycopg.connect(server.url).close()
    except psycopg.OperationalError:
        return False
    return True
