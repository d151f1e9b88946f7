from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from hesape.errors import StoreUnavailableError
from hesape_redis import keys
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis


class Sleeper:
    """A thread that waits, and what became of it."""

    def __init__(self, driver: RedisDriver, queues: tuple[str, ...] = ("default",), timeout_s: float = 10.0) -> None:
        self.woken: bool | None = None
        self.slept_s = 0.0
        self._thread = threading.Thread(target=self._sleep, args=(driver, queues, timeout_s))
        self._thread.start()

    def _sleep(self, driver: RedisDriver, queues: tuple[str, ...], timeout_s: float) -> None:
        start = time.monotonic()
        self.woken = driver.wait(queues, timeout_s)
        self.slept_s = time.monotonic() - start

    def wakes(self) -> bool:
        self._thread.join(15)
        return self.woken is True and self.slept_s < 5


@pytest.fixture
def sleeper(opened: Callable[..., RedisDriver], client: Any, prefix: str, poll: Any) -> Callable[..., Sleeper]:
    """Starts a sleeper on a driver of its own, and returns when it sleeps."""

    def start(queues: tuple[str, ...] = ("default",), timeout_s: float = 10.0) -> Sleeper:
        found = Sleeper(opened(), queues, timeout_s)
        names = [keys.channel(keys.base(prefix), queue) for queue in queues]
        poll(lambda: all(count for _, count in client.pubsub_numsub(*names)), "it listens")
        return found

    return start


def test_whatever_makes_a_job_due_wakes(desk: Any, sleeper: Callable[..., Sleeper]) -> None:
    driver = desk.driver

    def act(call: Callable[[], object]) -> None:
        asleep = sleeper()
        call()
        assert asleep.wakes()

    act(desk.push)
    job = desk.take()
    act(job.release)
    job = desk.take()
    act(lambda: driver.hand_back([job]))
    job = desk.take()
    job.fail("Boom")
    act(lambda: desk.queue.operator().retry(job.id))
    driver.beat("worker", 60_000_000, 60_000_000)
    desk.claim(worker="worker")
    act(lambda: driver.retire("worker"))
    driver.pause("default")
    act(lambda: driver.resume("default"))


def test_a_push_of_another_process_wakes(server: PrivateRedis, prefix: str, sleeper: Callable[..., Sleeper]) -> None:
    asleep = sleeper(("a", "default"))
    program = f"""
import hesape
grant = hesape.system_grant("x", "acme")
hesape.connect({server.url + "?prefix=" + prefix!r}).push(grant, hesape.Job.new(grant, "x"))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
    assert asleep.wakes()


def test_every_sleeper_is_woken_by_a_bulk(desk: Any, sleeper: Callable[..., Sleeper]) -> None:
    asleep = [sleeper() for _ in range(3)]
    desk.bulk(30)
    assert all(one.wakes() for one in asleep)


def test_a_job_that_falls_due_meanwhile_wakes_without_a_word(desk: Any, sleeper: Callable[..., Sleeper]) -> None:
    desk.push(delay=0.3)
    asleep = sleeper()
    assert asleep.wakes()
    assert asleep.slept_s < 1.0


def test_a_due_time_that_is_brought_forward_counts(desk: Any, sleeper: Callable[..., Sleeper]) -> None:
    desk.push(delay=60)
    asleep = sleeper()
    desk.push(delay=0.2)
    assert asleep.wakes()
    assert 0.15 < asleep.slept_s < 2.0


def test_another_queue_a_paused_queue_and_a_far_job_wake_nobody(desk: Any, sleeper: Callable[..., Sleeper]) -> None:
    desk.driver.pause("default")
    asleep = sleeper(timeout_s=0.6)
    desk.push(queue="other")
    desk.push(delay=60)
    assert not asleep.wakes()
    assert asleep.woken is False
    assert asleep.slept_s >= 0.55


def test_what_was_said_between_two_waits_isnt_lost(desk: Any, driver: RedisDriver) -> None:
    for _ in range(50):
        assert driver.wait(["default"], 0.0) is False
        desk.push()
        assert driver.wait(["default"], 10.0) is True
        desk.take().delete()


def test_what_was_said_to_an_earlier_wait_wakes_no_later_one(desk: Any, driver: RedisDriver) -> None:
    for _ in range(20):
        desk.push(queue="noise")
        desk.take("noise").delete()
        assert driver.wait(["noise"], 0.0) is False
    start = time.monotonic()
    assert driver.wait(["default"], 0.3) is False
    assert time.monotonic() - start > 0.25


def test_nobody_listens_between_two_waits(desk: Any, driver: RedisDriver, client: Any, prefix: str, poll: Any) -> None:
    driver.wait(["default"], 0.01)
    channel = keys.channel(keys.base(prefix), "default")
    poll(lambda: client.pubsub_numsub(channel) == [(channel.encode(), 0)], "the subscription ends")


def test_a_session_that_ends_costs_one_wait_alone(
    desk: Any, opened: Callable[..., RedisDriver], client: Any, poll: Any, prefix: str
) -> None:
    driver = opened()
    failed = threading.Event()

    def wait() -> None:
        with pytest.raises(StoreUnavailableError):
            driver.wait(["default"], 10.0)
        failed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    channel = keys.channel(keys.base(prefix), "default")
    poll(lambda: client.pubsub_numsub(channel)[0][1], "it listens")
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
    thread.join(15)
    assert failed.is_set()
    desk.push()
    assert driver.wait(["default"], 10.0) is True


def test_an_idle_waiter_costs_next_to_nothing(driver: RedisDriver) -> None:
    start, work = time.monotonic(), time.process_time()
    while time.monotonic() - start < 1.5:
        driver.wait(["default"], 0.25)
    assert time.process_time() - work < 0.05
