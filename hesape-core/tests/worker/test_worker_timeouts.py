"""Handlers that run past their timeout."""

from __future__ import annotations

import asyncio
import random
import threading
import time
import weakref
from typing import TYPE_CHECKING

from hesape.attributes import Attributes
from hesape.records import Counts
from hesape.worker.worker import Reason

if TYPE_CHECKING:
    from worker.conftest import Shop


def test_a_thread_is_interrupted_at_its_timeout_and_that_counts_as_an_exception(shop: Shop) -> None:
    @shop.handler("spin", timeout=0.1, tries=2, backoff=0)
    def spin() -> None:
        while True:
            sum(range(100))

    job = shop.push("spin")
    shop.work()
    found = shop.queue.operator().find(job.id)
    assert found.exceptions == 2
    assert (found.last_error or "").startswith("JobTimeoutError: the handler ran longer than its timeout of 0.1 s")
    assert shop.kinds(job).count("timed out") == 2


def test_a_coroutine_is_cancelled_at_its_timeout(shop: Shop) -> None:
    cleaned: list[int] = []

    @shop.handler("sleep", timeout=0.1, tries=1)
    async def sleeps() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.append(1)

    job = shop.push("sleep")
    shop.work()
    assert (shop.queue.operator().find(job.id).last_error or "").startswith("JobTimeoutError")
    assert cleaned == [1]


def test_a_timeout_inside_the_handler_is_an_ordinary_exception(shop: Shop) -> None:
    @shop.handler("inner", timeout=30, tries=2, backoff=100, fail_on_timeout=True)
    def inner() -> None:
        raise TimeoutError

    shop.push("inner")
    shop.work()
    assert shop.queue.counts() == Counts(0, 1, 0, 0)


def test_a_job_may_ask_for_a_timeout_of_its_own(shop: Shop) -> None:
    @shop.handler("spin", timeout=30, tries=1)
    def spin() -> None:
        while True:
            sum(range(100))

    job = shop.push("spin", attributes=Attributes(timeout=0.05, tries=1))
    shop.work()
    assert (shop.queue.operator().find(job.id).last_error or "").startswith("JobTimeoutError")


def test_timeouts_at_random_moments_leave_the_store_in_step(shop: Shop) -> None:
    seed = 424242
    print(f"seed {seed}")  # noqa: T201 - a failure is repeated with it
    chance = random.Random(seed)

    @shop.handler("note")
    def note() -> None: ...

    @shop.handler("push", tries=1)
    def push() -> None:
        for _ in range(10_000):
            shop.push("note", queue="other")

    for _ in range(60):
        shop.push("push", attributes=Attributes(timeout=chance.uniform(0.001, 0.05), tries=1))
    shop.work()
    assert shop.queue.counts() == Counts(0, 0, 0, 60)
    pushed = shop.queue.counts("other").pending
    assert pushed > 60
    assert shop.work(queues=("other",)).reason is Reason.EMPTY
    assert shop.queue.counts("other").size == 0


def test_a_handler_whose_interruption_python_ignores_is_interrupted_again(shop: Shop) -> None:
    class Thing: ...

    @shop.handler("tidy", timeout=0.1, tries=1)
    def tidy() -> None:
        while True:
            thing = Thing()
            reference = weakref.ref(thing, lambda _: [sum(range(100)) for _ in range(1_000)])
            del thing
            assert reference() is None

    for _ in range(10):
        shop.push("tidy")
    assert shop.work(concurrency=2).reason is Reason.EMPTY
    assert shop.queue.counts() == Counts(0, 0, 0, 10)


def test_a_handler_that_ignores_its_interruption_costs_its_process_and_nobody_elses_job(shop: Shop) -> None:
    release = threading.Event()

    @shop.handler("deaf", timeout=0.1, tries=2, backoff=100)
    def deaf() -> None:
        release.wait(20)

    @shop.handler("long")
    def long() -> None:
        time.sleep(3)

    culprit = shop.push("deaf")
    shop.push("long")
    for _ in range(3):
        shop.push("long", queue="default")
    stop = shop.work(concurrency=2, grace_s=5, prefetch=3)
    assert (stop.reason, stop.status, stop.clean) == (Reason.STUCK, 75, False)
    counts = shop.queue.counts()
    assert (counts.pending, counts.delayed, counts.reserved) == (3, 1, 0)
    assert shop.kinds(culprit)[-4:] == ["timed out", "exception", "released", "attempted"]
    assert {job.attempts for job in shop.queue.pop(n=3)} == {1}
    release.set()
