"""Threads, forks, interruptions, and sessions that the server ends."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from hesape.errors import HesapeError, OutcomeUnknownError, StoreUnavailableError
from hesape_conformance.relay import Relay
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis


def sessions(client: Any) -> int:
    return len(client.client_list())


def test_eight_threads_share_one_driver(desk: Any, client: Any, poll: Any) -> None:
    before = sessions(client)

    def work(name: int) -> list[int]:
        queue = f"q{name}"
        found = []
        for n in range(200):
            desk.push({"n": n}, queue=queue)
            job = desk.take(queue)
            found.append(job.decode()["n"])
            job.delete()
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [list(range(200))] * 8
    assert sessions(client) - before <= 8
    desk.driver.close()
    poll(lambda: sessions(client) == before, "the server sees them end")


def test_a_forked_child_opens_its_own_and_its_parent_goes_on(server: PrivateRedis, prefix: str, desk: Any) -> None:
    """Forks from a child with one thread."""
    program = f"""
import json, os, sys
import hesape
from hesape import Job
queue = hesape.connect({server.url + "?prefix=" + prefix!r})
grant = hesape.system_grant("invoice.send", "acme")
def push(n): return queue.push(grant, Job.new(grant, "invoice.send", {{"n": n}})).id
ids = [push(0)]
queue.driver.wait(["other"], 0.01)
children = []
for child in range(4):
    read, write = os.pipe()
    if os.fork() == 0:
        mine = [push(n) for n in range(100)]
        taken = [job.id for _ in range(50) for job in queue.pop()]
        woken = queue.driver.wait(["other"], 0.01)
        os.write(write, json.dumps([mine, taken, woken]).encode())
        os._exit(0)
    os.close(write)
    children.append(read)
for read in children:
    with os.fdopen(read) as lines:
        mine, taken, woken = json.load(lines)
    assert len(taken) == 50 and woken is False, (len(taken), woken)
    ids += mine
for _ in children:
    assert os.wait()[1] == 0
ids.append(push(1))
print(json.dumps(ids))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    ids = json.loads(done.stdout)
    assert len(ids) == len(set(ids)) == 402
    counts = desk.queue.counts()
    assert (counts.pending, counts.reserved) == (202, 200)


class InterruptedHereError(BaseException):
    """What is raised in a thread from outside."""


def raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InterruptedHereError))


@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_an_exception_from_outside_leaves_no_connection_out_of_step(desk: Any, where: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - it repeats a failure
    chance = random.Random(seed)
    driver = desk.driver

    def work() -> int:
        hits = 0
        for n in range(150):
            driver.write_flag("flag:a", str(n - 1), None)
            timer = threading.Timer(chance.uniform(0, 0.01), raise_in, [threading.get_ident()])
            try:
                timer.start()
                while True:
                    driver.write_flag("flag:a", str(n), None)
                    assert driver.read_flag("flag:a") == str(n)
                    assert driver.counts("default").size == 0
            except InterruptedHereError:
                hits += 1
            assert driver.increment("counter:a", 1, 60_000_000)[0] == hits
            assert driver.read_flag("flag:a") in {str(n), str(n - 1)}
            assert driver.queues() == []
        return hits

    if where == "main thread":
        assert work() == 150
    else:
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(work).result(60) == 150


def test_ended_sessions_are_replaced_before_anything_is_sent(desk: Any, client: Any) -> None:
    for n in range(20):
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        desk.driver._store([], None)
        assert desk.driver.increment("counter:a", 1, 60_000_000)[0] == n + 1


def test_a_session_that_ends_while_a_handler_runs_is_no_matter_to_its_job(desk: Any, client: Any) -> None:
    desk.push({"n": 1})
    job = desk.take(lease=60)
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    job.delete()
    assert desk.queue.counts().size == 0


def test_a_lost_answer_of_a_write_is_an_unknown_outcome_and_of_a_look_it_isnt(
    server: PrivateRedis, opened: Callable[..., RedisDriver]
) -> None:
    with Relay(("127.0.0.1", server.port)) as relay:
        driver = opened(f"redis://127.0.0.1:{relay.endpoint[1]}")
        driver.pause("warm")
        driver.counts("warm")
        relay.cut_at_reply(1)
        with pytest.raises(OutcomeUnknownError) as caught:
            driver.pause("default")
        assert isinstance(caught.value.__cause__, redis.ConnectionError)
        assert driver.queues() == ["default", "warm"]
        relay.cut_at_reply(1)
        with pytest.raises(StoreUnavailableError):
            driver.counts("default")


def test_every_reply_of_every_operation_may_be_lost(
    server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any
) -> None:
    """Each is repeated by core until it has its answer, and is done once."""
    with Relay(("127.0.0.1", server.port)) as relay:
        desk = at(opened(f"redis://127.0.0.1:{relay.endpoint[1]}"))

        def cut(call: Callable[[], Any]) -> Any:
            relay.cut_at_reply(1)
            found = call()
            assert relay.was_cut
            relay.cut_at_reply(None)
            return found

        desk.push({"n": "warm"})
        desk.take().delete()
        cut(lambda: desk.push({"n": 0}))
        cut(lambda: desk.bulk(20))
        assert desk.queue.counts().pending == 21
        jobs = cut(lambda: desk.queue.pop(n=10))
        assert (len(jobs), desk.queue.counts().reserved, {job.attempts for job in jobs}) == (10, 10, {1})
        cut(lambda: jobs[0].release(60))
        cut(lambda: jobs[1].fail("Boom"))
        cut(lambda: jobs[2].extend(120))
        cut(lambda: desk.driver.hand_back([jobs[3]]))
        assert cut(lambda: desk.driver.delete_jobs(jobs[4:])) == []
        counts = desk.queue.counts()
        assert (counts.pending, counts.delayed, counts.reserved, counts.failed) == (12, 1, 1, 1)


def test_a_server_that_is_silent_costs_the_timeout_and_no_more(
    own_server: PrivateRedis, opened: Callable[..., RedisDriver]
) -> None:
    driver = opened(own_server.url, timeout=0.3)
    driver.pause("default")
    with redis.Redis.from_url(own_server.url) as client:
        client.execute_command("CLIENT", "PAUSE", 1500, "ALL")
        start = time.monotonic()
        with pytest.raises(OutcomeUnknownError):
            driver.resume("default")
        assert time.monotonic() - start < 1.2
        with pytest.raises(StoreUnavailableError):
            driver.queues()
        client.execute_command("CLIENT", "UNPAUSE")
    assert driver.queues() in (["default"], [])


def test_more_threads_than_connections_is_told_as_such(opened: Callable[..., RedisDriver]) -> None:
    driver = opened(pool_size=1)
    held = driver._link.take()
    with pytest.raises(StoreUnavailableError, match="Too many connections"):
        driver.now()
    driver._link.give_back(held, in_step=True)
    assert driver.now() > 0


def test_connections_dont_pile_up_however_calls_end(
    own_server: PrivateRedis, opened: Callable[..., RedisDriver], client: Any
) -> None:
    driver = opened(own_server.url, pool_size=3)
    for n in range(10):
        driver.pause("default")
        own_server.kill()
        with pytest.raises(HesapeError):
            driver.resume("default")
        with pytest.raises(HesapeError):
            driver.wait(["default"], 0.01)
        own_server.start()
        driver.wait(["default"], 0.01)
        assert driver.queues() == ["default"], n
    with redis.Redis.from_url(own_server.url) as own:
        assert sessions(own) <= 4


def test_closing_a_second_time_does_nothing_and_a_call_opens_anew(desk: Any, client: Any, poll: Any) -> None:
    before = sessions(client)
    desk.push()
    desk.driver.wait(["other"], 0.01)
    assert sessions(client) > before
    desk.driver.close()
    desk.driver.close()
    poll(lambda: sessions(client) == before, "the server sees them end")
    assert desk.queue.counts().pending == 1
    assert os.getpid() == desk.driver._link._pid
