"""When and how a worker process stops, and what it leaves behind."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from hesape.records import Counts
from hesape.worker.restart import request_restart
from hesape.worker.worker import Reason

if TYPE_CHECKING:
    from worker.conftest import Shop


def test_once_is_one_job(shop: Shop) -> None:
    seen: list[int] = []

    @shop.handler("note")
    def note() -> None:
        seen.append(1)

    shop.push("note")
    shop.push("note")
    assert shop.work(once=True, stop_when_empty=False).reason is Reason.MAX_JOBS
    assert seen == [1]
    assert shop.queue.counts() == Counts(1, 0, 0, 0)


def test_once_without_any_job_stops_at_once(shop: Shop) -> None:
    assert shop.work(once=True, stop_when_empty=False).reason is Reason.EMPTY


def test_max_jobs_are_no_more(shop: Shop) -> None:
    seen: list[int] = []

    @shop.handler("note")
    def note() -> None:
        seen.append(1)

    for _ in range(100):
        shop.push("note")
    stop = shop.work(max_jobs=37, stop_when_empty=False)
    assert (stop.reason, stop.status, len(seen)) == (Reason.MAX_JOBS, 0, 37)
    assert shop.queue.counts() == Counts(63, 0, 0, 0)


def test_max_time_stops_after_the_running_job(shop: Shop) -> None:
    @shop.handler("note")
    def note() -> None:
        time.sleep(0.4)

    shop.push("note")
    assert shop.work(max_time_s=0.2, stop_when_empty=False).reason is Reason.MAX_TIME
    assert shop.queue.counts() == Counts(0, 0, 0, 0)


def test_too_much_memory_is_exit_code_12(shop: Shop) -> None:
    stop = shop.work(memory_mib=1, stop_when_empty=False)
    assert (stop.reason, stop.status) == (Reason.MEMORY, 12)


def test_a_restart_is_for_workers_that_run(shop: Shop) -> None:
    request_restart(shop.driver)
    shop.start(lease_s=1)
    shop.until(lambda: any(event.kind == "looping" for event in shop.events))
    time.sleep(0.5)
    assert shop.stops == []
    request_restart(shop.driver)
    assert shop.join().reason is Reason.RESTART


def test_empty_waits_for_what_others_hold(shop: Shop) -> None:
    @shop.handler("note")
    def note() -> None: ...

    shop.push("note")
    job = shop.queue.pop()[0]
    shop.start(stop_when_empty=True)
    time.sleep(0.3)
    assert shop.stops == []
    job.release(0)
    assert shop.join().reason is Reason.EMPTY
    assert shop.queue.counts().size == 0


def test_a_stop_gives_back_what_never_started_and_lets_the_running_finish(shop: Shop) -> None:
    release = threading.Event()
    seen: list[int] = []
    ended: list[int] = []

    @shop.handler("long")
    def long(number: int) -> None:
        seen.append(number)
        release.wait(10)
        ended.append(number)

    for number in range(200):
        shop.push("long", {"number": number})
    worker = shop.start(prefetch=196)
    shop.until(lambda: len(seen) == 4 and shop.queue.counts().reserved == 200)
    worker.stop()
    shop.until(lambda: shop.queue.counts() == Counts(196, 0, 4, 0))
    assert ended == []
    release.set()
    stop = shop.join()
    assert (stop.reason, stop.status) == (Reason.ASKED, 0)
    assert shop.queue.counts() == Counts(196, 0, 0, 0)
    back = shop.queue.pop(n=200)
    assert [job.decode()["number"] for job in back] == [number for number in range(200) if number not in seen]
    assert {job.attempts for job in back} == {1}


def test_at_the_end_of_the_grace_running_jobs_are_due_again_spent(shop: Shop) -> None:
    started, release = threading.Event(), threading.Event()

    @shop.handler("long")
    def long() -> None:
        started.set()
        release.wait(10)

    shop.push("long")
    worker = shop.start(grace_s=0.2)
    shop.until(started.is_set)
    worker.stop()
    stop = shop.join()
    assert not stop.clean
    job = shop.queue.pop()[0]
    assert (job.attempts, job.exceptions) == (2, 0)
    job.delete()
    release.set()


def test_a_second_stop_is_at_once(shop: Shop) -> None:
    release = threading.Event()

    @shop.handler("long")
    def long() -> None:
        release.wait(10)

    shop.push("long")
    worker = shop.start(grace_s=60)
    shop.until(lambda: shop.queue.counts().reserved == 1)
    worker.stop()
    worker.stop()
    shop.join()
    assert shop.queue.counts() == Counts(1, 0, 0, 0)
    release.set()


def test_on_hold_nothing_is_claimed_until_it_goes_on(shop: Shop) -> None:
    @shop.handler("note")
    def note() -> None: ...

    worker = shop.start()
    worker.hold()
    shop.push("note")
    time.sleep(0.3)
    assert shop.queue.counts().pending == 1
    worker.go_on()
    shop.until(lambda: shop.queue.counts().size == 0)


def test_a_paused_queue_starts_nothing_and_gives_back_what_was_prefetched(shop: Shop) -> None:
    gate = threading.Semaphore(0)
    seen: list[int] = []

    @shop.handler("step")
    def step(number: int) -> None:
        seen.append(number)
        assert gate.acquire(timeout=10)

    for number in range(10):
        shop.push("step", {"number": number})
    shop.start(concurrency=1, prefetch=9, lease_s=3)
    shop.until(lambda: shop.queue.counts().reserved == 10)
    shop.queue.operator().pause("default")
    shop.until(lambda: shop.queue.counts() == Counts(9, 0, 1, 0), within=2)
    gate.release()
    shop.until(lambda: shop.queue.counts() == Counts(9, 0, 0, 0))
    time.sleep(0.2)
    assert seen == [0]
    shop.queue.operator().resume("default")
    for _ in range(9):
        gate.release()
    shop.until(lambda: shop.queue.counts().size == 0)
    assert seen == list(range(10))
