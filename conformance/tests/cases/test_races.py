"""Cases about two who settle or repair one job at the same moment, on every store."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest

import hesape
from hesape.errors import HesapeError, LeaseLostError, NotFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cases.conftest import Site

pytestmark = pytest.mark.parametrize("harness", ["memory", "sqlite", "mysql", "postgres", "redis"], indirect=True)

ROUNDS = 40
LEASE_S = 0.05


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each of the calls returned or raised; they begin together."""
    start, ends = threading.Barrier(len(calls)), list[object]([None] * len(calls))

    def run(number: int, call: Callable[[], object]) -> None:
        start.wait()
        try:
            ends[number] = call()
        except HesapeError as error:
            ends[number] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return ends


def test_an_acknowledgement_at_the_very_end_of_its_lease_or_the_next_delivery_ends_a_job_never_both(site: Site) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - a random test prints its seed
    source, queue = random.Random(seed), site.queue
    ends = []
    for number in range(ROUNDS):
        site.push("quick", number=number)
        [first] = queue.pop(lease=LEASE_S)

        def late(wait_s: float = LEASE_S * source.uniform(0.7, 1.2), job: hesape.Job = first) -> str:
            time.sleep(wait_s)
            job.delete()
            return "late"

        def park() -> str:
            until = time.monotonic() + LEASE_S * 4
            while time.monotonic() < until:
                for job in queue.pop():
                    job.fail("Expired: parked by the next delivery")
                    return "parked"
            return "nothing"

        told = at_once(late, park)
        left = queue.counts().failed
        if isinstance(told[0], LeaseLostError):
            if told[1] == "nothing":  # a machine under load: the job is still there
                [job] = queue.pop()
                job.fail("Expired: parked by the next delivery")
                left = queue.counts().failed
            assert left == 1
        else:
            assert told == ["late", "nothing"]
            assert left == 0
        ends.append(left)
        assert queue.counts().size == 0
        queue.operator().flush()
    assert len(ends) == ROUNDS


def test_of_two_retries_of_one_failed_job_at_once_one_moves_it(site: Site) -> None:
    queue = site.queue
    for number in range(ROUNDS // 2):
        pushed = site.push("quick", number=number)
        [job] = queue.pop()
        job.fail("Boom")
        grant = hesape.system_grant("hesape.failed.retry", "acme")
        told = at_once(*[lambda grant=grant, job=job: queue.retry(grant, job.id)] * 2)
        assert sum(end is None for end in told) == 1, told
        assert sum(isinstance(end, NotFailedError) for end in told) == 1, told
        counts = queue.counts()
        assert (counts.pending, counts.failed) == (1, 0)
        [again] = queue.pop()
        assert (again.id, again.attempts) == (pushed.id, 1)
        again.delete()
