from __future__ import annotations

import gc
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import hesape
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql.driver import MySQLDriver


def woken(driver: MySQLDriver, act: Callable[[], object], queue: str = "default") -> float:
    """How long after `act` a waiter woke; it fails when it slept its full time."""
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(driver.wait, [queue], 10.0)
        time.sleep(0.2)
        assert not waiter.done()
        start = time.monotonic()
        act()
        assert waiter.result(15) is True
        return time.monotonic() - start


def test_what_another_process_would_store_is_seen_within_a_look(
    queue: Queue, open_driver: Callable[..., MySQLDriver], grant: Grant
) -> None:
    waiting = open_driver()
    waiting.queues()
    assert woken(waiting, lambda: queue.push(grant, hesape.Job.new(grant, "n"))) < 1


def test_what_the_same_driver_stores_wakes_without_a_look(
    open_driver: Callable[..., MySQLDriver], grant: Grant
) -> None:
    driver = open_driver(poll=3000)
    pushed = Queue(driver)
    pushed.queues()
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(driver._waker.wait, ["default"], 10.0, lambda *, thorough: False)
        time.sleep(0.3)
        pushed.push(grant, hesape.Job.new(grant, "n", queue="other"))
        time.sleep(0.1)
        assert not waiter.done()
        pushed.push(grant, hesape.Job.new(grant, "n"))
        assert waiter.result(5) is True


def test_what_falls_due_and_a_lease_that_ran_out_wake(queue: Queue, driver: MySQLDriver, grant: Grant) -> None:
    queue.later(grant, 0.5, hesape.Job.new(grant, "n"))
    assert driver.wait(["default"], 0.1) is False
    assert driver.wait(["default"], 5) is True
    [job] = queue.pop(lease=0.5)
    assert driver.wait(["default"], 0.1) is False
    assert driver.wait(["default"], 5) is True
    assert queue.pop()[0].id == job.id


def test_a_paused_queue_keeps_nobody_awake(queue: Queue, driver: MySQLDriver, grant: Grant) -> None:
    queue.push(grant, hesape.Job.new(grant, "n"))
    queue.operator().pause("default")
    assert driver.wait(["default", "other"], 0.3) is False
    queue.operator().resume("default")
    assert driver.wait(["default", "other"], 5) is True


def test_an_idle_waiter_is_cheap(driver: MySQLDriver) -> None:
    driver.queues()
    work = time.process_time()
    assert driver.wait(["default"], 2.0) is False
    assert time.process_time() - work < 0.1


def test_a_look_neither_waits_for_a_lent_push_nor_wakes_before_its_commit(
    queue: Queue, driver: MySQLDriver, grant: Grant, connect: Callable[..., Any]
) -> None:
    queue.queues()
    conn = connect()
    conn.begin()
    queue.push(grant, hesape.Job.new(grant, "n"), tx=conn)
    start = time.monotonic()
    assert driver.wait(["default"], 0.3) is False
    assert time.monotonic() - start < 2
    assert woken(driver, conn.commit) < 1


def test_nothing_is_remembered_of_what_nobody_waits_for(open_driver: Callable[..., MySQLDriver], grant: Grant) -> None:
    """A worker lives for months, and sees any number of queues."""
    driver = open_driver()
    queue = Queue(driver)
    queue.bulk(grant, [hesape.Job.new(grant, "n", queue=f"q{number}") for number in range(50)])
    assert driver.wait(["other"], 0.05) is False
    gc.collect()
    assert not driver._waker._waiters
    assert all("q7" not in str(value) for value in vars(driver._waker).values())
