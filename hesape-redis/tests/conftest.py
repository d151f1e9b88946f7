from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import hesape
from hesape.config import ConnectionSettings
from hesape.driver import Driver
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Claimed, new_token
from hesape_redis.driver import RedisDriver, open_driver
from hesape_redis.testing import PrivateRedis

NAME, TENANT = "invoice.send", "acme"
_numbers = itertools.count(1)


class Desk:
    """One queue over one driver, as an application has them, with a grant at hand."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.queue = Queue(driver, name="main")
        self.grant = hesape.system_grant(NAME, TENANT)

    def job(self, payload: object = None, **options: Any) -> Job:
        return Job.new(self.grant, NAME, payload, **options)

    def push(self, payload: object = None, *, delay: float = 0, **options: Any) -> Job:
        job = self.job(payload, **options)
        return self.queue.later(self.grant, delay, job) if delay else self.queue.push(self.grant, job)

    def bulk(self, n: int, **options: Any) -> list[Job]:
        return self.queue.bulk(self.grant, [self.job({"n": i}, **options) for i in range(n)])

    def take(self, queue: str = "default", **options: Any) -> Job:
        [job] = self.queue.pop(queue, **options)
        return job

    def claim(self, n: int = 1, *, worker: str = "", queues: tuple[str, ...] = ("default",)) -> Claimed:
        return self.driver.reserve(Claim(queues, n, 60_000_000, new_token(), worker))

    def numbers(self) -> list[int]:
        """The payloads of all that is due, which is deleted."""
        found = []
        while jobs := self.queue.pop(n=1000):
            found += [job.decode()["n"] for job in jobs]
            assert self.driver.delete_jobs(jobs) == []
        return found


def eventually(check: Callable[[], object], what: str, within_s: float = 10.0) -> None:
    """Poll until `check` is true."""
    deadline = time.monotonic() + within_s
    while not check():
        assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
        time.sleep(0.005)


@pytest.fixture(scope="session")
def server() -> Iterator[PrivateRedis]:
    """A server that every test may use and none stops."""
    with PrivateRedis() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[PrivateRedis]:
    """A server of this test alone, which it may stop and fill. It syncs every write."""
    with PrivateRedis(appendfsync="always") as server:
        yield server


@pytest.fixture
def prefix() -> str:
    return f"t{next(_numbers)}:"


@pytest.fixture
def opened(server: PrivateRedis, prefix: str) -> Iterator[Callable[..., RedisDriver]]:
    """Opens drivers on the test's own keys, or on another server; they are closed after it."""
    with contextlib.ExitStack() as stack:

        def open_one(url: str = "", **options: Any) -> RedisDriver:
            driver = open_driver(
                ConnectionSettings(
                    name="main", driver="redis", url=url or server.url, options={"prefix": prefix, **options}
                )
            )
            stack.callback(driver.close)
            return driver

        yield open_one


@pytest.fixture
def driver(opened: Callable[..., RedisDriver]) -> RedisDriver:
    return opened()


@pytest.fixture
def desk(driver: RedisDriver) -> Desk:
    return Desk(driver)


@pytest.fixture
def at() -> Callable[[Driver], Desk]:
    """A desk over another driver."""
    return Desk


@pytest.fixture
def poll() -> Callable[..., None]:
    return eventually


@pytest.fixture
def client(server: PrivateRedis) -> Iterator[Any]:
    """The test's own look at the shared server."""
    with redis.Redis.from_url(server.url) as client:
        yield client
