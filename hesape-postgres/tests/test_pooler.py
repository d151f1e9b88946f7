from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_postgres.driver import PostgresDriver

GRANT = system_grant("run", "acme")
SECOND_US = 1_000_000
Db = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def pooled(opened: Callable[..., PostgresDriver]) -> PostgresDriver:
    return opened(pooler=True, pool_size=2)


def test_it_leaves_nothing_in_the_session(pooled: PostgresDriver, db: Db) -> None:
    queue = Queue(pooled)
    with pooled._link.own() as own:
        before = own.rows(b"select name, setting from pg_settings where source in ('session', 'client') order by name")
        defaults = own.rows(b"show default_transaction_isolation"), own.rows(b"show plan_cache_mode")
    for n in range(20):
        queue.push(GRANT, Job.new(GRANT, "n", {"n": n}))
        queue.bulk(GRANT, [Job.new(GRANT, "n", {"n": m}) for m in range(60)])
        pooled.beat("w", 8 * SECOND_US, 60 * SECOND_US)
        pooled.wait(["default"], 0.001)
        for job in queue.pop(n=61):
            job.extend(100)
        pooled.delete_jobs(queue.pop(n=5))
        pooled.rescue()
    with pooled._link.own() as own:
        assert own.rows(b"select name from pg_prepared_statements") == []
        assert own.rows(b"select pg_listening_channels()") == []
        settings = b"select name, setting from pg_settings where source in ('session', 'client') order by name"
        assert own.rows(settings) == before
        assert defaults == ([("read committed",)], [("auto",)])
    assert db.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)
    names = db.execute("select application_name from pg_stat_activity where application_name like 'hesape%'").fetchall()
    assert set(names) == {("hesape",)}
    assert len(names) <= 2


def test_all_jobs_are_done_with_two_connections(pooled: PostgresDriver) -> None:
    queue = Queue(pooled)
    queue.bulk(GRANT, [Job.new(GRANT, "n", {"n": n}) for n in range(500)])
    done: list[str] = []

    def work() -> None:
        while jobs := queue.pop(n=9):
            for job in jobs:
                job.delete()
                done.append(job.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == len(done) == 500


def test_a_serializable_default_doesnt_matter_behind_a_pooler(
    database: Callable[..., str], opened: Callable[..., PostgresDriver]
) -> None:
    url = database()
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"alter database {conn.info.dbname} set default_transaction_isolation = 'serializable'".encode())
    driver = opened(url=url, pooler=True)
    queue = Queue(driver)
    queue.bulk(GRANT, [Job.new(GRANT, "n", {"n": n}) for n in range(200)])
    done: list[str] = []

    def work() -> None:
        while jobs := queue.pop(n=9):
            assert driver.delete_jobs(jobs) == []
            done.extend(job.id for job in jobs)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(done)) == len(done) == 200


def test_a_workers_life_is_told_by_its_beats(pooled: PostgresDriver) -> None:
    queue = Queue(pooled)
    queue.push(GRANT, Job.new(GRANT, "n"))
    pooled.beat("w", SECOND_US, 60 * SECOND_US)
    from hesape.records import Claim, new_token

    assert len(pooled.reserve(Claim(("default",), 1, 60 * SECOND_US, new_token(), "w")).rows) == 1
    assert pooled.rescue() == 0
    start = time.monotonic()
    while not pooled.rescue():
        assert time.monotonic() - start < 10
        time.sleep(0.02)
    assert time.monotonic() - start > 0.8
    assert queue.counts().pending == 1


def test_a_push_wakes_waiters_of_its_own_process(pooled: PostgresDriver) -> None:
    queue = Queue(pooled)
    queue.counts()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(pooled.wait(["default"], 30)))
    thread.start()
    time.sleep(0.1)
    start = time.monotonic()
    queue.push(GRANT, Job.new(GRANT, "n"))
    thread.join()
    assert woken == [True]
    assert time.monotonic() - start < 5
