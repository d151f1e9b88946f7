from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from hesape.config import ConnectionSettings
from hesape.errors import StoreError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, new_token
from hesape_postgres import notify
from hesape_postgres.driver import PostgresDriver, open_driver
from hesape_postgres.statements import SERVER
from hesape_postgres.testing import PrivatePostgres

GRANT = system_grant("run", "acme")
SECOND_US = 1_000_000
Db = psycopg.Connection[tuple[Any, ...]]


def eventually(holds: Callable[[], object], within_s: float = 10.0) -> float:
    """How long it took until it held."""
    start = time.monotonic()
    while not holds():
        assert time.monotonic() - start < within_s, "not in time"
        time.sleep(0.01)
    return time.monotonic() - start


def end_sessions(db: Db, name: str = "hesape%") -> int:
    found = db.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name like %s", (name,)
    ).fetchall()
    return len(found)


def sessions(db: Db, name: str) -> list[int]:
    found = db.execute("select pid from pg_stat_activity where application_name = %s", (name,)).fetchall()
    return [pid for (pid,) in found]


def take(driver: PostgresDriver, worker: str, n: int = 1) -> list[str]:
    claim = Claim(("default",), n, 600 * SECOND_US, new_token(), worker)
    return [row.id for row in driver.reserve(claim).rows]


def test_connections_that_the_server_ended_cost_no_error(queue: Queue, driver: PostgresDriver, db: Db) -> None:
    queue.push(GRANT, Job.new(GRANT, "n"))
    for call in (
        lambda: driver.reserve(Claim(("other",), 1, SECOND_US, new_token())),  # one attempt, as drivers make it
        lambda: driver.counts("default"),
        driver.now,
    ):
        assert end_sessions(db) > 0
        call()


def test_a_job_is_deleted_after_its_session_was_ended(queue: Queue, db: Db) -> None:
    queue.push(GRANT, Job.new(GRANT, "n"))
    (job,) = queue.pop()
    end_sessions(db)
    job.delete()
    assert queue.counts().size == 0


def test_a_lost_listener_comes_back_and_wakes(queue: Queue, driver: PostgresDriver, db: Db) -> None:
    assert not driver.wait(["default"], 0.01)
    (first,) = sessions(db, "hesape listener")
    end_sessions(db, "hesape listener")
    eventually(lambda: sessions(db, "hesape listener") not in ([], [first]))
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(driver.wait(["default"], 30)))
    thread.start()
    start = time.monotonic()
    queue.push(GRANT, Job.new(GRANT, "n"))
    thread.join()
    assert woken == [True]
    assert time.monotonic() - start < 5


def test_a_strangers_notification_harms_nobody(driver: PostgresDriver, db: Db) -> None:
    driver.wait(["default"], 0.01)
    for payload in ("", "default x", "default later ", "a b c d", "\n", " ", "default 99999999"):
        db.execute("select pg_notify(%s, %s)", (f"hesape_{driver._link.store_id.replace('-', '')}", payload))
    assert not driver.wait(["default"], 0.1)
    Queue(driver).push(GRANT, Job.new(GRANT, "n"))
    assert driver.wait(["default"], 10)


def test_a_checkup_says_whether_commits_are_durable(driver: PostgresDriver, opened: Any, postgres: Any) -> None:
    assert [(found.fine, found.text) for found in driver.checkup()] == [(True, "fsync is on, synchronous_commit is on")]
    hasty = opened(url=f"{postgres.url}?options=-c%20synchronous_commit%3Doff")
    assert [found.fine for found in hasty.checkup()] == [False]


def test_many_pushes_are_announced_few_times_and_the_last_one_is(queue: Queue, driver: PostgresDriver, db: Db) -> None:
    db.execute(f'listen "hesape_{driver._link.find().replace("-", "")}"'.encode())
    start = time.monotonic()
    for _ in range(200):
        queue.push(GRANT, Job.new(GRANT, "n"))
    took = time.monotonic() - start
    told = [note.payload for note in db.notifies(timeout=0.5)]
    assert set(told) == {"default"}
    assert 1 <= len(told) <= took / 0.005 + 3


def test_a_wait_ends_when_a_delayed_job_is_due(queue: Queue, driver: PostgresDriver) -> None:
    driver.now()
    waited: list[float] = []

    def wait() -> None:
        start = time.monotonic()
        assert driver.wait(["default"], 30)
        waited.append(time.monotonic() - start)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)  # it waits, and knows of nothing
    queue.later(GRANT, 0.4, Job.new(GRANT, "n"))
    thread.join()
    assert 0.4 <= waited[0] < 3
    assert len(queue.pop()) == 1


def _hold(settings: ConnectionSettings, pipe: Any) -> None:
    driver = open_driver(settings)
    driver.beat("victim", 600 * SECOND_US, 600 * SECOND_US)
    pipe.send(take(driver, "victim"))
    while True:
        driver.beat("victim", 600 * SECOND_US, 600 * SECOND_US)
        time.sleep(1)


@pytest.fixture
def victim(driver: PostgresDriver) -> Iterator[tuple[multiprocessing.process.BaseProcess, list[str]]]:
    """A process that holds a job, with a lease and beats that last ten minutes."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_hold, args=(driver._link.settings, there), daemon=True)
    Queue(driver).push(GRANT, Job.new(GRANT, "n"))
    process.start()
    yield process, here.recv()
    process.kill()
    process.join()


def test_a_killed_workers_job_is_back_within_two_seconds(
    driver: PostgresDriver, victim: tuple[multiprocessing.process.BaseProcess, list[str]]
) -> None:
    process, held = victim
    eventually(lambda: driver.rescue() == 0)
    assert take(driver, "other") == []
    assert process.pid is not None
    killed = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    found: list[str] = []
    next_rescue = killed + 0.99  # the worst moment: a rescue was a moment before
    while not found:
        assert time.monotonic() - killed < 10
        if time.monotonic() >= next_rescue:
            driver.rescue()
            next_rescue += 1
        found = take(driver, "other")
        time.sleep(0.02)
    assert found == held
    assert time.monotonic() - killed < 2
    assert [worker.worker for worker in driver.workers()] == []


def test_a_worker_that_lost_its_session_keeps_its_jobs(
    driver: PostgresDriver, opened: Callable[..., PostgresDriver], db: Db
) -> None:
    worker, rescuer = driver, opened()
    Queue(driver).push(GRANT, Job.new(GRANT, "n"))
    worker.beat("w", 600 * SECOND_US, 600 * SECOND_US)
    assert len(take(worker, "w")) == 1
    for _ in range(3):
        (pid,) = sessions(db, "hesape liveness")
        assert end_sessions(db, "hesape liveness") == 1
        assert rescuer.rescue() == 0  # at once, and again a little later
        assert sessions(db, "hesape liveness") not in ([], [pid])
    assert rescuer.rescue() == 0
    assert [row.held for row in rescuer.workers()] == [1]


def test_a_young_server_has_nobody_declared_dead(opened: Callable[..., PostgresDriver], schema: str) -> None:
    with PrivatePostgres() as server:
        driver = opened(url=server.url)
        Queue(driver).push(GRANT, Job.new(GRANT, "n"))
        driver.beat("w", 600 * SECOND_US, 600 * SECOND_US)
        take(driver, "w")
        driver._liveness.close()  # the lock goes, as with a restart before the worker is back
        time.sleep(0.05)
        assert driver.rescue() == 0
        assert [row.held for row in driver.workers()] == [1]
        eventually(lambda: driver.rescue() == 1, within_s=15)


def test_a_crashed_backend_doesnt_make_workers_dead(opened: Callable[..., PostgresDriver]) -> None:
    """The server drops every session and lock then, without a restart of its postmaster."""
    with PrivatePostgres() as server:
        driver = opened(url=server.url)
        Queue(driver).push(GRANT, Job.new(GRANT, "n"))
        driver.beat("w", 600 * SECOND_US, 600 * SECOND_US)
        take(driver, "w")
        eventually(lambda: driver._link.look("select now() - pg_postmaster_start_time() > '5.5 s'") == [(True,)])
        before = _incarnation(driver)
        with psycopg.connect(server.url) as conn:
            os.kill(conn.info.backend_pid, signal.SIGKILL)
        driver._liveness.close()  # and this worker is slow to come back
        eventually(lambda: _incarnation(driver) not in {None, before})
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert driver.rescue() == 0


def _incarnation(driver: PostgresDriver) -> int | None:
    with contextlib.suppress(StoreError):
        found: int = driver._link.look(f"select {SERVER}")[0][0]
        return found
    return None


def test_a_server_that_says_nothing_is_given_up(
    driver: PostgresDriver, opened: Callable[..., PostgresDriver], db: Db
) -> None:
    patient = opened(statement_timeout=0.5)
    patient.now()
    own = patient._link.pool.take()
    own.conn.patience_s = 0.5
    pid = own.conn.info.backend_pid
    patient._link.pool.give(own)
    os.kill(pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        with pytest.raises(StoreError, match="no answer within"):
            patient.now()
        assert time.monotonic() - start < 5
    finally:
        os.kill(pid, signal.SIGCONT)
    assert patient.now() > 0


def test_forked_children_push_and_pop_and_the_parent_goes_on(queue: Queue, driver: PostgresDriver) -> None:
    """Pushes and pops; the children leave by the interpreter's own end."""
    queue.push(GRANT, Job.new(GRANT, "n"))
    driver.close()  # no thread but this one
    driver.now()
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for _ in range(20):
                    queue.push(GRANT, Job.new(GRANT, "n"))
                assert len(queue.pop(n=5)) == 5
                driver.close()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    queue.push(GRANT, Job.new(GRANT, "n"))
    counts = queue.counts()
    assert (counts.pending, counts.reserved) == (62, 20)


def test_threads_share_a_driver(queue: Queue) -> None:
    done: list[str] = []

    def work() -> None:
        for _ in range(50):
            queue.push(GRANT, Job.new(GRANT, "n"))
            for job in queue.pop():
                job.delete()
                done.append(job.id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while jobs := queue.pop(n=50):
        for job in jobs:
            job.delete()
            done.append(job.id)
    assert len(set(done)) == len(done) == 400


def test_names_of_queues_that_came_are_remembered_up_to_a_number(
    queue: Queue, driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "_REMEMBERED", 5)
    driver.now()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(driver.wait(["default"], 30)))
    thread.start()
    eventually(lambda: driver._waiter._changed._waiters)  # type: ignore[attr-defined]
    for n in range(20):
        queue.push(GRANT, Job.new(GRANT, "n", queue=f"q{n}"))
        queue.later(GRANT, 60, Job.new(GRANT, "n", queue=f"q{n}"))
    start = time.monotonic()
    queue.push(GRANT, Job.new(GRANT, "n"))
    thread.join()
    assert woken == [True]
    assert time.monotonic() - start < 10
    assert max(len(driver._waiter._now), len(driver._waiter._later)) <= 5
