"""Cases about a server that comes and goes while workers live on."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

import hesape
from hesape.errors import StoreError
from hesape.jobs import Job

if TYPE_CHECKING:
    from cases.conftest import Site

pytestmark = [
    pytest.mark.parametrize("harness", ["mysql", "postgres", "redis"], indirect=True),
    pytest.mark.timeout(180),
]


def test_an_idle_worker_takes_its_job_after_every_kind_of_restart(site: Site) -> None:
    harness = site.harness
    worker = site.start("--concurrency", "1")
    site.push("quick", number=0)
    pids = {site.noted("quick", 0)[3]}

    def kill() -> None:
        harness.kill()
        harness.restart()

    def restarts() -> None:
        for _ in range(3):
            harness.restart()

    for number, end in enumerate((kill, restarts, harness.cut_sessions), 1):
        end()
        site.push("quick", number=number)
        pids.add(site.noted("quick", number, within_s=40)[3])
    assert worker.poll() is None
    assert len(pids) == 1
    assert site.stop() == [0], site.log()
    assert Counter(line[1] for line in site.notes("quick")) == {"0": 1, "1": 1, "2": 1, "3": 1}


def test_a_job_that_ends_while_the_server_is_away_is_acknowledged_when_it_is_back(site: Site) -> None:
    site.start("--concurrency", "1")
    site.push("sleep", seconds=1.5, number=1)
    site.noted("sleep", 1)
    site.harness.kill()
    site.noted("slept", 1)
    site.harness.restart()
    site.push("quick", number=2)
    site.noted("quick", 2, within_s=40)
    assert site.stop() == [0], site.log()
    assert Counter(line[0] for line in site.notes()) == {"sleep": 1, "slept": 1, "quick": 1}
    assert site.queue.counts().size == 0


def test_a_bulk_whose_server_is_killed_is_stored_whole_or_not_at_all(site: Site) -> None:
    grant = hesape.system_grant("quick", "acme")
    jobs = [Job.new(grant, "quick", {"number": number, "filling": "x" * 500}) for number in range(5_000)]
    told: list[object] = []

    def push() -> None:
        try:
            told.append(len(site.queue.bulk(grant, jobs)))
        except StoreError as error:
            told.append(error)

    pusher = threading.Thread(target=push)
    pusher.start()
    pusher.join(0.25)
    site.harness.kill()
    pusher.join(0.5)
    site.harness.restart()
    pusher.join(60)
    assert len(told) == 1
    stored = len(site.harness.raw(site.namespace).rows())
    assert stored in {0, 5_000}
    if isinstance(told[0], int):
        assert stored == 5_000
    again = site.queue.bulk(grant, jobs)
    assert [job.id for job in again] == [job.id for job in jobs]
    assert site.queue.counts().pending == 5_000
