from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape.config import ConnectionSettings
from hesape.errors import JobTimeoutError, StoreUnavailableError
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.testing import MySQLHarness

ROUNDS = 150


def job(grant: Grant, **payload: Any) -> hesape.Job:
    return hesape.Job.new(grant, "n", payload)


def idle(driver: MySQLDriver) -> list[Any]:
    """The ids of the pooled connections."""
    connections: list[Any] = [session.connection for session in driver._pool._idle]
    return [connection.thread_id() for connection in connections]


def test_a_connection_that_the_server_ended_while_idle_is_replaced_before_anything_is_sent(
    queue: Queue, driver: MySQLDriver, grant: Grant, harness: MySQLHarness
) -> None:
    queue.push(grant, job(grant))
    before = idle(driver)
    harness.cut_sessions()
    driver._store([], None)  # the first call of all, and no repeat in core behind it
    assert driver.counts("default").pending == 1
    assert before
    assert set(before).isdisjoint(idle(driver))


def test_a_handler_that_outlasts_the_sessions_idle_time_is_still_acknowledged(
    queue: Queue, driver: MySQLDriver, grant: Grant
) -> None:
    """Case 34: wait_timeout 2 s, a handler of 4 s, a lease of 60 s."""
    queue.push(grant, job(grant))
    with driver._pool.session() as session:
        session.ask("set session wait_timeout = 2")
    [popped] = queue.pop()
    time.sleep(4)  # what a handler does
    popped.delete()
    assert queue.counts().size == 0


def test_every_session_has_the_settings_that_the_statements_rely_on(driver: MySQLDriver) -> None:
    with driver._pool.session() as session:
        [answer] = session.ask(
            "select @@character_set_client, @@time_zone, @@autocommit, @@sql_mode like '%STRICT_ALL_TABLES%',"
            " @@innodb_lock_wait_timeout"
        )
    assert answer.rows == (("utf8mb4", "+00:00", 1, 1, 5),)


def test_a_call_waits_for_a_lock_no_longer_than_the_option_says(
    open_driver: Callable[..., MySQLDriver], grant: Grant, connect: Callable[..., Any], namespace: str
) -> None:
    driver = open_driver(lock_timeout=1)
    queue = Queue(driver)
    pushed = queue.push(grant, job(grant))
    [popped] = queue.pop()
    conn = connect()
    conn.begin()
    with conn.cursor() as cursor:
        cursor.execute(
            f"select 1 from {namespace}_jobs where id = unhex(replace(%s, '-', '')) for update", (pushed.id,)
        )
    key = hesape.jobs.key_of(popped)
    start = time.monotonic()
    with pytest.raises(StoreUnavailableError, match="1205"):
        driver._delete([key], repeat=False, tx=None)
    assert 0.5 < time.monotonic() - start < 4
    deadline = driver._extend([key], 3_600_000_000)  # a locked row is reported as it is, and not waited for
    assert (deadline[0] or 0) < driver.now() + 61_000_000
    conn.rollback()
    popped.delete()


def test_an_interrupted_call_costs_its_connection_and_nothing_else(
    queue: Queue, driver: MySQLDriver, grant: Grant
) -> None:
    """Case 33: a timeout thrown into the middle of calls, again and again, in a thread that isn't the main one."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    chance = random.Random(seed)
    pushed: list[int] = []
    interrupted = 0

    def work() -> None:
        nonlocal interrupted
        try:
            while not stop.is_set():
                queue.push(grant, job(grant, n=len(pushed)))
                pushed.append(len(pushed))
        except JobTimeoutError:
            interrupted += 1

    for _ in range(ROUNDS):
        stop = threading.Event()
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(chance.random() * 0.01)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(JobTimeoutError))
        thread.join(0.2)
        stop.set()
        thread.join(10)
        assert not thread.is_alive()
        assert queue.counts("nothing").size == 0
    assert interrupted > ROUNDS * 0.8
    assert len(pushed) <= queue.counts().pending <= len(pushed) + interrupted


def test_threads_share_a_driver(queue: Queue, grant: Grant) -> None:
    """Case 36: eight threads, each pushes, pops and acknowledges 200 jobs beside a beat."""
    seen: list[int] = []

    def work(number: int) -> None:
        for n in range(200):
            queue.push(grant, job(grant, n=number * 1000 + n))
            [popped] = queue.pop()
            seen.append(popped.decode()["n"])
            popped.delete()

    with ThreadPoolExecutor(9) as pool:
        working = [pool.submit(work, number) for number in range(8)]
        beating = pool.submit(lambda: [queue.driver.beat("w", 8_000_000, 60_000_000) for _ in range(20)])
        for future in working:
            future.result(100)
        beating.result(100)
    assert sorted(seen) == sorted(number * 1000 + n for number in range(8) for n in range(200))
    assert queue.counts().size == 0


def test_a_forked_child_opens_its_own_connections_and_leaves_the_parents_alone(
    queue: Queue, driver: MySQLDriver, grant: Grant
) -> None:
    """Case 37: four children push 100 and pop 50 each, and the parent goes on."""
    queue.push(grant, job(grant))
    before = idle(driver)
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert not driver._pool._idle
                queue.bulk(grant, [job(grant) for _ in range(50)])
                for _ in range(50):
                    queue.push(grant, job(grant))
                for popped in queue.pop(n=50):
                    popped.delete()
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0, 0]
    assert idle(driver) == before
    queue.push(grant, job(grant))
    assert idle(driver) == before
    assert queue.counts().pending == 1 + 4 * 50 + 1


def test_a_server_that_is_away_is_said_to_be_and_found_again(
    grant: Grant, harness: MySQLHarness, settings: ConnectionSettings
) -> None:
    """Case 28: killed and restarted, the same object works again, every pooled connection replaced."""
    driver = MySQLDriver.from_settings(settings)
    queue = Queue(driver)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: driver.wait(["nothing"], 0.1), range(4)))
    queue.push(grant, job(grant))
    harness.kill()
    with pytest.raises(StoreUnavailableError):
        driver.counts("default")
    harness.restart()
    assert driver.counts("default").pending == 1
    assert len(queue.pop()) == 1
    driver.close()


def test_a_stopped_server_does_not_hold_a_call_for_longer_than_its_timeout(
    open_driver: Callable[..., MySQLDriver], harness: MySQLHarness
) -> None:
    driver = open_driver(read_timeout=1, connect_timeout=1)
    assert driver.queues() == []
    pid = harness._private("stop").pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        while Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        start = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            driver.queues()
        assert time.monotonic() - start < 4
    finally:
        os.kill(pid, signal.SIGCONT)
    assert driver.queues() == []


def test_after_close_a_call_opens_anew(queue: Queue, driver: MySQLDriver) -> None:
    assert queue.queues() == []
    driver.close()
    driver.close()
    assert idle(driver) == []
    assert queue.queues() == []
