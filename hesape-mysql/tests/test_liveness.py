from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

import hesape
from hesape.config import ConnectionSettings
from hesape.grants import Grant
from hesape.queue import Queue
from hesape.records import Claim, new_token
from hesape_mysql import liveness
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.testing import MySQLHarness

MINUTE_US = 60_000_000


def work(settings: ConnectionSettings, pipe: Connection) -> None:
    """A worker process: it registers, claims what there is, says so, and hangs."""
    driver = MySQLDriver.from_settings(settings)
    driver.beat("doomed", 10 * MINUTE_US, MINUTE_US)
    rows = driver.reserve(Claim(("default",), 10, 60 * MINUTE_US, new_token(), "doomed")).rows
    pipe.send(len(rows))
    while True:
        time.sleep(0.2)
        driver.beat("doomed", 10 * MINUTE_US, MINUTE_US)


@pytest.fixture
def doomed(settings: ConnectionSettings, queue: Queue, grant: Grant, harness: MySQLHarness) -> Iterator[Any]:
    queue.bulk(grant, [hesape.Job.new(grant, "n") for _ in range(3)])
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=work, args=(settings, theirs))
    child.start()
    assert ours.recv() == 3
    yield child
    child.kill()
    child.join()


def up_for(harness: MySQLHarness, seconds: float) -> None:
    deadline = time.monotonic() + seconds + 5
    while int(harness._ask("show global status like 'Uptime'")[0][1]) < seconds:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_jobs_of_a_killed_worker_run_elsewhere_within_two_seconds(
    doomed: Any, queue: Queue, driver: MySQLDriver, harness: MySQLHarness
) -> None:
    up_for(harness, liveness._FRESH_SERVER_S)
    assert driver.rescue() == 0
    assert [(row.worker, row.held) for row in driver.workers()] == [("doomed", 3)]
    killed = time.monotonic()
    os.kill(doomed.pid, signal.SIGKILL)
    while not (found := queue.pop(n=5)):
        assert time.monotonic() - killed < 2
        driver.rescue()
        time.sleep(0.05)
    assert [job.attempts for job in found] == [2, 2, 2]
    assert [hesape.jobs.attached(job).lapses for job in found] == [1, 1, 1]
    assert driver.workers() == []


def test_a_worker_that_lost_its_session_takes_its_lock_anew_and_is_not_rescued(
    doomed: Any, driver: MySQLDriver, harness: MySQLHarness
) -> None:
    up_for(harness, liveness._FRESH_SERVER_S)
    harness.cut_sessions()
    for _ in range(4):
        assert driver.rescue() == 0
        time.sleep(0.3)
    assert [row.held for row in driver.workers()] == [3]


def test_a_server_that_just_started_has_nobody_declared_dead(
    doomed: Any, driver: MySQLDriver, harness: MySQLHarness
) -> None:
    os.kill(doomed.pid, signal.SIGKILL)
    harness.restart()
    assert driver.rescue() == 0
    up_for(harness, liveness._FRESH_SERVER_S)
    assert driver.rescue() == 3


def test_a_silent_worker_is_dead_when_its_time_is_over_whatever_its_lock_says(
    queue: Queue, driver: MySQLDriver, grant: Grant
) -> None:
    queue.push(grant, hesape.Job.new(grant, "n"))
    driver.beat("frozen", 50_000, MINUTE_US)
    assert driver.reserve(Claim(("default",), 1, MINUTE_US, new_token(), "frozen")).rows
    time.sleep(0.1)
    assert driver.rescue() == 1
    assert queue.counts().pending == 1


def test_a_forked_child_does_not_keep_its_parents_lock(driver: MySQLDriver, harness: MySQLHarness) -> None:
    driver.beat("parent", MINUTE_US, MINUTE_US)
    lock = harness._ask("select lock_name from " + driver._settings.prefix + "workers")[0][0]
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    assert harness._ask("select is_used_lock(%s)", (lock,))[0][0] is not None
    driver.close()
    deadline = time.monotonic() + 5
    while harness._ask("select is_used_lock(%s)", (lock,))[0][0] is not None:
        assert time.monotonic() < deadline
    os.close(write)
    os.waitpid(pid, 0)


def test_a_killed_parent_loses_its_lock_although_its_child_lives(
    settings: ConnectionSettings, harness: MySQLHarness
) -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        driver = MySQLDriver.from_settings(settings)
        driver.beat("parent", MINUTE_US, MINUTE_US)
        child = os.fork()
        os.write(write, b"%d\n" % (child or os.getpid()))
        time.sleep(60)
        os._exit(0)
    os.close(write)
    said = b""
    while said.count(b"\n") < 2:
        said += os.read(read, 64)
    child = int(said.split()[0])
    lock = harness._ask(f"select lock_name from {settings.options['prefix']}workers")[0][0]
    assert harness._ask("select is_used_lock(%s)", (lock,))[0][0] is not None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        deadline = time.monotonic() + 5
        while harness._ask("select is_used_lock(%s)", (lock,))[0][0] is not None:
            assert time.monotonic() < deadline
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_beat_renews_what_ends_soon_and_nothing_that_somebody_has_locked(
    queue: Queue, driver: MySQLDriver, grant: Grant, connect: Callable[..., Any], namespace: str
) -> None:
    queue.bulk(grant, [hesape.Job.new(grant, "n") for _ in range(3)])
    rows = driver.reserve(Claim(("default",), 3, 20 * 1_000_000, new_token(), "w")).rows
    conn = connect()
    with conn.cursor() as cursor:
        cursor.execute(
            f"select 1 from {namespace}_jobs where id = unhex(replace(%s, '-', '')) for update", (rows[0].id,)
        )
        start = time.monotonic()
        driver.beat("w", MINUTE_US, MINUTE_US, [rows[1].id])
        assert time.monotonic() - start < 1
        cursor.execute(f"select at_us - claimed_us > 50000000 from {namespace}_jobs order by seq")
        assert [row[0] for row in cursor.fetchall()] == [0, 0, 1]


def test_a_retired_worker_is_forgotten_at_once_except_for_what_is_locked(
    queue: Queue, driver: MySQLDriver, grant: Grant, connect: Callable[..., Any], namespace: str
) -> None:
    queue.bulk(grant, [hesape.Job.new(grant, "n") for _ in range(2)])
    driver.beat("w", MINUTE_US, MINUTE_US)
    rows = driver.reserve(Claim(("default",), 2, MINUTE_US, new_token(), "w")).rows
    conn = connect()
    with conn.cursor() as cursor:
        cursor.execute(
            f"select 1 from {namespace}_jobs where id = unhex(replace(%s, '-', '')) for update", (rows[0].id,)
        )
        assert driver.retire("w") == 1
        assert [row.held for row in driver.workers()] == [1]
    conn.rollback()
    assert driver.retire("w") == 1
    assert driver.workers() == []
