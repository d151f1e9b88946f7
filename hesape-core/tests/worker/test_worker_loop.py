"""How a worker process claims and holds jobs."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from hesape.jobs import Job
from hesape.records import Counts

if TYPE_CHECKING:
    from worker.conftest import Shop


def test_every_job_runs_once_whatever_their_number(shop: Shop) -> None:
    seen: Counter[int] = Counter()

    @shop.handler("count")
    def count(number: int) -> None:
        seen[number] += 1

    for number in range(3_000):
        shop.push("count", {"number": number})
    shop.work()
    assert seen == Counter(range(3_000))
    assert shop.queue.counts() == Counts(0, 0, 0, 0)


def test_a_slow_job_holds_nobody_up(shop: Shop) -> None:
    release = threading.Event()
    seen: list[int] = []

    @shop.handler("slow")
    def slow() -> None:
        assert release.wait(10)

    @shop.handler("quick")
    def quick() -> None:
        seen.append(1)

    shop.push("slow")
    for _ in range(200):
        shop.push("quick")
    shop.start(concurrency=2)
    shop.until(lambda: len(seen) == 200)
    shop.until(lambda: shop.queue.counts() == Counts(0, 0, 1, 0))
    release.set()
    shop.until(lambda: shop.queue.counts().size == 0)


def test_a_worker_of_long_jobs_holds_no_more_than_it_runs(shop: Shop) -> None:
    release = threading.Event()

    @shop.handler("long")
    def long() -> None:
        release.wait(10)

    for _ in range(10):
        shop.push("long")
    shop.start(concurrency=3)
    shop.until(lambda: shop.queue.counts().reserved == 3)
    time.sleep(0.2)
    assert shop.queue.counts() == Counts(7, 0, 3, 0)
    release.set()


def test_what_was_prefetched_goes_back_unspent_when_every_slot_is_stuck_in_a_long_job(shop: Shop) -> None:
    release = threading.Event()
    attempts: list[int] = []

    @shop.handler("quick")
    def quick() -> None: ...

    @shop.handler("long")
    def long(job: Job) -> None:
        attempts.append(job.attempts)
        release.wait(10)

    for _ in range(400):
        shop.push("quick")
    for _ in range(40):
        shop.push("long")
    shop.start(concurrency=2)
    shop.until(lambda: len(attempts) == 2)
    shop.until(lambda: shop.queue.counts() == Counts(38, 0, 2, 0))
    release.set()
    shop.until(lambda: shop.queue.counts().size == 0)
    assert attempts == [1] * 40


def test_several_queues_are_drained_strictly_in_order(shop: Shop) -> None:
    seen: list[str] = []

    @shop.handler("note")
    def note(job: Job) -> None:
        seen.append(job.queue)

    for queue in ("low", "high") * 30:
        shop.push("note", queue=queue)
    shop.work(queues=("high", "low"), concurrency=1)
    assert seen == ["high"] * 30 + ["low"] * 30


def test_queues_with_weights_share_in_proportion(shop: Shop) -> None:
    seen: list[str] = []

    @shop.handler("note")
    def note(job: Job) -> None:
        seen.append(job.queue)

    for queue in ("low", "high") * 400:
        shop.push("note", queue=queue)
    shop.work(queues=("high", "low"), weights=(3, 1), concurrency=1)
    assert 250 <= Counter(seen[:400])["high"] <= 350
    assert len(seen) == 800


def test_an_idle_worker_is_woken_by_a_push(shop: Shop) -> None:
    done: list[float] = []

    @shop.handler("note")
    def note() -> None:
        done.append(time.monotonic())

    shop.start(sleep_s=5)
    shop.until(lambda: any(event.kind == "looping" for event in shop.events))
    pushed = time.monotonic()
    shop.push("note")
    shop.until(lambda: done)
    assert done[0] - pushed < 0.5


def test_a_finished_job_is_deleted_soon_while_another_runs(shop: Shop) -> None:
    release = threading.Event()

    @shop.handler("long")
    def long() -> None:
        release.wait(10)

    @shop.handler("quick")
    def quick() -> None: ...

    shop.push("long")
    shop.push("quick")
    began = time.monotonic()
    shop.start(sleep_s=5)
    shop.until(lambda: shop.queue.counts().reserved == 1)
    assert time.monotonic() - began < 0.5
    release.set()
