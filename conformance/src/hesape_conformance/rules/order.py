"""O1, O2, O3: which job is next."""

from __future__ import annotations

import statistics
import time
import uuid
from typing import TYPE_CHECKING

from hesape import times
from hesape_conformance.catalogue import rule
from hesape_conformance.trial import RETRY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

EQUALS = 120
PROMOTED = 1_000


def numbers(jobs: Sequence[Job]) -> list[int]:
    """The numbers that jobs carry."""
    return [job.decode()["n"] for job in jobs]


def unsorted_ids(trial: Trial, n: int) -> list[str]:
    """Ids whose order tells nothing."""
    return [str(uuid.UUID(int=trial.random.getrandbits(128), version=4)) for _ in range(n)]


def before(trial: Trial, wait: int, push: Callable[[int], int]) -> tuple[int, int]:
    """Push jobs that must be stored before a moment, anew and for later where that took too long.

    `push` takes how many microseconds there are, and returns the moment; both are returned, too.
    """
    for more in (1, 5, 25, 125):
        moment = push(more * wait)
        if trial.driver.now() < moment:
            return moment, more * wait
        trial.queue.operator().clear("default")
    message = f"the store took more than {125 * wait / 1e6:g} s to store a few jobs"
    raise AssertionError(message)


@rule("O1", "Equal jobs come in push order, one by one and in bulk, never by id, name or text")
def push_order(trial: Trial) -> None:
    for n, job_id in enumerate(unsorted_ids(trial, EQUALS)):
        trial.push({"n": n}, id=job_id, name=f"job {n}")
    assert numbers(trial.queue.pop(n=EQUALS)) == list(range(EQUALS))
    jobs = [trial.job({"n": n}, id=job_id) for n, job_id in enumerate(unsorted_ids(trial, EQUALS))]
    trial.queue.bulk(trial.grant(), jobs)
    found = [*trial.queue.pop(n=7), *trial.queue.pop(n=1), *trial.queue.pop(n=EQUALS)]
    assert numbers(found) == list(range(EQUALS))


@rule("O1", "Jobs due at the very same future moment come in push order")
def same_moment(trial: Trial) -> None:
    equals = trial.times(20, EQUALS, EQUALS)
    half = equals // 2

    def push(wait: int) -> int:
        moment = times.from_us(trial.driver.now() + wait)
        jobs = [trial.job({"n": n}, id=job_id, run_at=moment) for n, job_id in enumerate(unsorted_ids(trial, equals))]
        for job in jobs[:half]:
            trial.queue.push(trial.grant(), job)
        trial.queue.bulk(trial.grant(), jobs[half:])
        return times.to_us(moment)

    moment, _ = before(trial, trial.times(400_000, 1_200_000, 1_200_000), push)
    assert trial.queue.pop(n=equals) == []
    trial.until(moment)
    found = [*trial.queue.pop(n=half + 3), *trial.queue.pop(n=equals)]
    assert numbers(found) == list(range(equals))


@rule("O1", "Priority decides first, the lower number sooner, over its whole range")
def priority(trial: Trial) -> None:
    wanted = [100, -32768, 0, 32767, -1, 1, 99, 101, 100]
    for n, each in enumerate(wanted):
        trial.push({"n": n}, priority=each)
    expected = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    jobs = trial.queue.pop(n=4)
    jobs += [job for _ in range(len(wanted) - 4) for job in trial.queue.pop()]
    assert numbers(jobs) == expected
    assert [job.priority for job in jobs] == sorted(wanted)
    trial.push_many(3)
    trial.push({"n": 7}, priority=99)
    assert numbers(trial.queue.pop(n=2)) == [7, 0]


@rule("O1", "Within a priority the job that became due first comes first, whenever it was pushed")
def due_order(trial: Trial) -> None:
    def push(wait: int) -> int:
        end = trial.driver.now() + wait
        for n, share in enumerate((3, 1, 2)):
            trial.push({"n": n}, delay=share * wait / 1e6)
        return end

    moment, wait = before(trial, 80_000, push)
    trial.until(moment + 3 * wait)
    trial.push({"n": 3})
    assert numbers(trial.queue.pop(n=9)) == [1, 2, 0, 3]


@rule("O1", "A run_at that is past doesn't jump the queue")
def past_run_at(trial: Trial) -> None:
    trial.push({"n": 0})
    trial.push({"n": 1}, run_at=times.from_us(trial.driver.now() - 86_400_000_000))
    trial.push({"n": 2}, run_at=times.from_us(1))
    trial.push({"n": 3})
    assert numbers(trial.queue.pop(n=9)) == [0, 1, 2, 3]
    oldest = trial.queue.oldest_pending()
    assert oldest is None


@rule("O1", "A released job goes behind its equals, also after a delay, and keeps its priority")
def released(trial: Trial) -> None:
    trial.push_many(3)
    trial.take().release()
    assert numbers(trial.queue.pop(n=9)) == [1, 2, 0]
    trial.push_many(2)
    job = trial.take()
    job.release(0.05)
    trial.until(trial.driver.now() + 100_000)
    trial.push({"n": 2})
    assert numbers(trial.queue.pop(n=9)) == [1, 0, 2]
    trial.push({"n": 5}, priority=5)
    trial.push_many(2)
    trial.take().release()
    assert numbers(trial.queue.pop(n=9)) == [5, 0, 1]


@rule("O1", "A retried job is due now, behind its equals")
def retried(trial: Trial) -> None:
    trial.push({"n": 0})
    job = trial.take()
    job.fail("Boom")
    trial.push({"n": 1})
    trial.queue.retry(trial.grant(action=RETRY), job.id)
    trial.push({"n": 2})
    assert numbers(trial.queue.pop(n=9)) == [1, 0, 2]


@rule("O1", "Several that are retried in one call come in the order given, whenever they were pushed or failed")
def retried_together(trial: Trial) -> None:
    equals = 12
    trial.queue.bulk(
        trial.grant(), [trial.job({"n": n}, id=job_id) for n, job_id in enumerate(unsorted_ids(trial, equals))]
    )
    jobs = trial.queue.pop(n=equals)
    for job in jobs:
        job.fail("Boom")
    order = trial.random.sample(range(equals), equals)
    trial.queue.retry(trial.grant(action=RETRY), [jobs[n].id for n in order])
    assert numbers(trial.queue.pop(n=equals)) == order


@rule("O1", "A claim that promotes its full share goes on before it claims: no priority waits behind it")
def full_share(trial: Trial) -> None:
    many = trial.times(PROMOTED + 50, 2 * PROMOTED + 50, 3 * PROMOTED + 50)
    jobs = [trial.job({"n": n}) for n in range(many)]
    jobs.append(trial.job({"n": -1}, priority=1))

    def push(wait: int) -> int:
        moment = trial.driver.now() + wait
        for job in jobs:
            job.run_at = times.from_us(moment if job.priority is None else moment + 10_000)
        trial.queue.bulk(trial.grant(), jobs)
        return moment

    moment, _ = before(trial, 200_000, push)
    trial.until(moment + 20_000)
    assert trial.queue.counts().size == many + 1
    assert numbers(trial.queue.pop(n=3)) == [-1, 0, 1]
    found = 3
    while jobs := trial.queue.pop(n=1000, lease=0.01):
        found += len(jobs)
        if found >= many + 1:
            break
    trial.until(trial.driver.now() + 30_000)
    urgent = trial.job({"n": -2}, priority=2)
    trial.queue.push(trial.grant(), urgent)
    assert numbers(trial.queue.pop(n=1)) == [-2]
    assert sum(trial.tally()) == many + 2


@rule("O2", "Thousands of scheduled and failed jobs leave the pop's speed within twice that of an empty store")
def idle_weight(trial: Trial) -> None:
    laden, empty = trial.queue, trial.another(namespace=trial.elsewhere())
    weight = trial.times(5_000, 10_000, 100_000)
    for part in range(weight // 1_000):
        jobs = [trial.job({"n": n}) for n in range(1_000)]
        for job in jobs:
            job.run_at = times.from_us(trial.driver.now() + 3_600_000_000)
        laden.bulk(trial.grant(), jobs)
        if part % 5 == 0:
            laden.bulk(trial.grant(), [trial.job({"n": n}) for n in range(100)])
            for job in laden.pop(n=100):
                job.fail("Boom")
    slow: list[str] = []
    while len(slow) < 5:  # what a busy machine does passes; a fault is there each time
        alone, beside = _typical(trial, empty, laden)
        if beside < 2 * alone + 0.0001:
            return
        slow.append(f"{beside * 1e6:.0f} us beside {weight} idle jobs, {alone * 1e6:.0f} alone")
    assert not slow, f"a pop takes {', '.join(slow)}"


def _typical(trial: Trial, *queues: Queue) -> list[float]:
    """How long one pop takes on each queue; they take turns, so that a busy machine is so for all."""
    spent: list[list[float]] = [[] for _ in queues]
    for _ in range(40):
        for queue, found in zip(queues, spent, strict=True):
            queue.push(trial.grant(), trial.job())
            start = time.perf_counter()
            [job] = queue.pop()
            found.append(time.perf_counter() - start)
            job.delete()
    return [statistics.median(found) for found in spent]


@rule("O3", "Queues are drained strictly in the order in which they are named, in one pop and in many")
def named_order(trial: Trial) -> None:
    for n, queue in enumerate(("low", "high", "mid") * 3):
        trial.push({"n": n}, queue=queue, priority=1 if queue == "low" else 100)
    order = ["high", "mid", "low"]
    assert numbers(trial.queue.pop(order, n=4)) == [1, 4, 7, 2]
    assert numbers(trial.queue.pop(order)) == [5]
    assert numbers(trial.queue.pop(["low", "mid"], n=2)) == [0, 3]
    assert numbers(trial.queue.pop(order, n=9)) == [8, 6]
    trial.push({"n": 10}, queue="low")
    trial.push({"n": 11}, queue="high", delay=0.05)
    trial.until(trial.driver.now() + 100_000)
    assert numbers(trial.queue.pop(order, n=2)) == [11, 10]


@rule("O3", "A queue that is named twice, or holds nothing, changes nothing")
def odd_lists(trial: Trial) -> None:
    trial.push_many(4)
    assert numbers(trial.queue.pop(["none", "default", "default", "none"], n=3)) == [0, 1, 2]
    assert numbers(trial.queue.pop(("default", "default"), n=3)) == [3]
