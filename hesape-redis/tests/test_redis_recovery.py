"""Servers that are killed, restarted and away, under producers and workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis

from hesape.errors import HesapeError, LeaseLostError, OutcomeUnknownError, StoreUnavailableError
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis


class Traffic:
    """Producers and workers that note what they were promised."""

    def __init__(self, server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any) -> None:
        self.stop = threading.Event()
        self.pushed: set[int] = set()
        self.unsure: set[int] = set()
        self.done: list[int] = []
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        desk = at(opened(server.url))
        self._threads = [threading.Thread(target=self._produce, args=(desk, n)) for n in range(4)]
        self._threads += [threading.Thread(target=self._work, args=(desk,)) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _produce(self, desk: Any, which: int) -> None:
        n = which
        while not self.stop.is_set():
            n += 4
            try:
                desk.push({"n": n})
            except OutcomeUnknownError:
                self.unsure.add(n)
            except StoreUnavailableError:
                continue
            else:
                with self._lock:
                    self.pushed.add(n)

    def _work(self, desk: Any) -> None:
        while not self.stop.is_set():
            try:
                for job in desk.queue.pop(n=5, lease=2):
                    number = job.decode()["n"]
                    try:
                        job.delete()
                    except LeaseLostError:
                        continue
                    with self._lock:
                        self.done.append(number)
            except StoreUnavailableError:
                continue
            except HesapeError as error:
                self.wrong.append(repr(error))

    def end(self) -> None:
        self.stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def test_nothing_acknowledged_is_lost_or_done_twice_when_the_server_is_killed(
    own_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any, poll: Any
) -> None:
    traffic = Traffic(own_server, opened, at)
    for _ in range(3):
        before = len(traffic.done)
        poll(lambda before=before: len(traffic.done) > before + 200, "jobs are done", 30)
        own_server.kill()
        own_server.start()
    before = len(traffic.done)
    poll(lambda: len(traffic.done) > before + 200, "jobs are done again", 30)
    traffic.end()
    desk = at(opened(own_server.url))
    rest: list[int] = []
    deadline = time.monotonic() + 20
    while desk.driver.queues() and time.monotonic() < deadline:
        rest += desk.numbers()
    finished = [*traffic.done, *rest]
    assert traffic.wrong == []
    assert len(finished) == len(set(finished)), "a job was done twice"
    missing = traffic.pushed - set(finished)
    assert not missing, f"{len(missing)} of {len(traffic.pushed)} are lost"
    assert set(finished) <= traffic.pushed | traffic.unsure


def test_without_an_append_only_file_a_killed_server_forgets_and_says_so(
    opened: Callable[..., RedisDriver], at: Any
) -> None:
    with PrivateRedis(appendonly=False) as server:
        desk = at(opened(server.url))
        desk.push()
        assert "loses every job" in desk.driver.checkup()[0].text
        server.kill()
        server.start()
        assert desk.queue.counts().size == 0


def test_an_idle_worker_takes_its_job_after_every_kind_of_restart(
    own_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any, poll: Any
) -> None:
    desk = at(opened(own_server.url))
    taken: list[int] = []
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            try:
                for job in desk.queue.pop():
                    taken.append(job.decode()["n"])
                    job.delete()
                desk.driver.wait(["default"], 0.25)
            except HesapeError:
                stop.wait(0.05)

    thread = threading.Thread(target=work)
    thread.start()

    def pushes(n: int) -> None:
        at(opened(own_server.url)).push({"n": n})
        poll(lambda: n in taken, f"job {n} is taken")

    pushes(0)
    own_server.stop()
    own_server.start()
    pushes(1)
    for _ in range(3):
        own_server.restart()
    pushes(2)
    own_server.kill()
    own_server.start()
    pushes(3)
    with redis.Redis.from_url(own_server.url) as client:
        for kind in ("normal", "pubsub"):
            client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    pushes(4)
    stop.set()
    thread.join(10)
    assert taken == [0, 1, 2, 3, 4]


def test_a_job_that_ended_while_the_server_was_away_is_settled_when_it_is_back(
    own_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any
) -> None:
    desk = at(opened(own_server.url))
    desk.push({"n": 1})
    job = desk.take(lease=60)
    own_server.kill()
    timer = threading.Timer(1.5, own_server.start)
    timer.start()
    job.delete()
    timer.join()
    assert desk.queue.counts().size == 0


def test_a_dead_workers_jobs_come_back_and_a_live_ones_stay(desk: Any, poll: Any) -> None:
    driver = desk.driver
    desk.bulk(4)
    driver.beat("dead", 50_000, 60_000_000)
    driver.beat("alive", 60_000_000, 60_000_000)
    lost = desk.claim(2, worker="dead").rows
    desk.claim(1, worker="alive")
    assert [row[0] for row in driver.workers()] == ["alive", "dead"]
    assert [row.held for row in driver.workers()] == [1, 2]
    poll(lambda: driver.rescue() == 2, "they come back")
    assert [row[0] for row in driver.workers()] == ["alive"]
    again = desk.claim(4).rows
    assert [row.id for row in again[:2]] == [row.id for row in lost]
    assert [(row.attempts, row.lapses) for row in again] == [(2, 1), (2, 1), (1, 0)]


def test_a_beat_renews_what_ends_soon_but_not_what_it_is_told_to_leave(desk: Any) -> None:
    from hesape.records import Claim, new_token

    driver = desk.driver
    desk.bulk(3)
    driver.beat("w", 60_000_000, 60_000_000)
    token = new_token()
    rows = driver.reserve(Claim(("default",), 3, 5_000_000, token, "w")).rows
    driver.beat("w", 60_000_000, 60_000_000, but=[rows[1].id])
    ends = driver._extend([(row.id, token) for row in rows], 0)
    assert [end > row.reserved_until_us + 30_000_000 for end, row in zip(ends, rows, strict=True)] == [
        True,
        False,
        True,
    ]
    before = ends
    driver.beat("w", 60_000_000, 60_000_000)
    after = driver._extend([(row.id, token) for row in rows], 0)
    assert after[0] == before[0]
    assert after[1] > before[1]


@pytest.mark.parametrize("spent", [True, False])
def test_what_a_claim_leaves_open_is_closed_with_its_last_delivery(desk: Any, client: Any, spent: bool) -> None:  # noqa: FBT001
    base = desk.driver.base
    desk.bulk(5)
    jobs = desk.queue.pop(n=5)
    assert (client.hlen(f"{base}claims"), client.hvals(f"{base}open")) == (1, [b"5"])
    jobs[0].delete()
    jobs[1].release(spent=spent)
    jobs[2].fail("Boom")
    assert client.hvals(f"{base}open") == [b"2"]
    desk.driver.hand_back([jobs[3]])
    desk.driver.clear("default")
    assert (client.hlen(f"{base}claims"), client.hlen(f"{base}open")) == (0, 0)
