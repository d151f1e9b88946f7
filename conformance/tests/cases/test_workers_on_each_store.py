"""Cases about workers: each store, real processes, as `hesape work` starts them."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hesape_conformance.expect import eventually

if TYPE_CHECKING:
    from cases.conftest import Site
    from hesape.jobs import Job

pytestmark = pytest.mark.parametrize("harness", ["sqlite", "mysql", "postgres", "redis"], indirect=True)

ODD = ("long", "emoji", "chain", "mute", "picky", "exit", "interrupt", "base", "deep")


def test_jobs_that_kill_their_worker_start_as_often_as_they_may_and_cost_no_other_job(site: Site) -> None:
    dying, once = site.push("die"), site.push("die-once")
    for number in range(5):
        site.push("quick", number=number)
    assert site.start("--stop-when-empty", "--concurrency", "1", "--lease", "30").wait(60) == 0, site.log()
    counts = Counter(line[0] for line in site.notes())
    assert counts == {"die": 3, "die-once": 1, "quick": 5}
    assert [line[2] for line in site.notes("die")] == ["1", "2", "3"]
    failed = {job.id: job for job in site.queue.operator().failed()}
    assert failed.keys() == {dying.id, once.id}
    assert all("lease" in (job.last_error or "").lower() for job in failed.values()), failed
    assert site.queue.counts().size == 0


def test_a_stop_lets_the_running_job_end_and_starts_nothing_of_any_queue(site: Site) -> None:
    site.push("sleep", seconds=1.0, queue="a")
    for number in range(6):
        site.push("quick", number=number, queue="b")
    worker = site.start("--queue", "a,b", "--concurrency", "1")
    site.noted("sleep", 0)
    asked = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0, site.log()
    assert time.monotonic() - asked < 20
    assert [line[0] for line in site.notes()] == ["sleep", "slept"]
    assert (site.queue.counts("a").size, site.queue.counts("b").pending) == (0, 6)
    assert [job.attempts for job in site.queue.pop("b", n=9)] == [1] * 6


def test_a_job_that_outlasts_its_lease_starts_once_though_another_worker_waits_for_it(site: Site) -> None:
    site.push("spin", seconds=4.0, number=1)
    site.push("sleep", seconds=4.0, number=2)
    for _ in range(2):
        site.start("--lease", "1.5", "--concurrency", "2")
    site.noted("spun", 1)
    site.noted("slept", 2)
    assert site.stop() == [0, 0], site.log()
    assert Counter(line[0] for line in site.notes()) == {"spin": 1, "spun": 1, "sleep": 1, "slept": 1}
    assert site.queue.counts().size == 0


def test_whatever_a_handler_raises_is_stored_and_the_same_process_goes_on(site: Site) -> None:
    site.push("quick", number=1)
    pushed = {site.push("odd", kind=kind).id: kind for kind in ODD}
    site.push("quick", number=2)
    assert site.start("--stop-when-empty", "--concurrency", "1").wait(60) == 0, site.log()
    assert len({line[3] for line in site.notes("quick")}) == 1
    assert len(site.notes("quick")) == 2
    failed = {pushed[job.id]: job for job in site.queue.operator().failed(limit=100)}
    assert failed.keys() == set(ODD)
    assert all(job.attempts == 1 for job in failed.values())
    errors = {kind: job.last_error or "" for kind, job in failed.items()}
    assert all(len(error.encode()) <= 16_384 for error in errors.values())
    names = ("ValueError", "ValueError", "ValueError", "Mute", "Picky", "SystemExit", "KeyboardInterrupt",
             "BaseException", "RecursionError")  # fmt: skip
    assert all(name in errors[kind].partition("\n")[0] for kind, name in zip(ODD, names, strict=True)), errors
    assert "broken 💥 😀" in errors["emoji"]


def test_each_job_runs_for_its_own_tenant_however_the_one_before_it_ended(site: Site) -> None:
    told = (
        ("acme", "raise"),
        ("globex", ""),
        ("acme", "timeout"),
        ("initech", ""),
        ("acme", "release"),
        ("globex", ""),
    )
    for number, (tenant, ends) in enumerate(told):
        site.push("tenant", tenant=tenant, number=number, ends=ends)
    site.start("--concurrency", "1")
    site.noted("tenant", len(told) - 1)
    assert site.stop() == [0], site.log()
    assert [line[4] for line in site.notes("tenant")] == [tenant for tenant, _ in told]
    assert sorted(job.tenant for job in site.queue.operator().failed()) == ["acme", "acme"]


def test_a_timeout_in_the_middle_of_a_push_leaves_the_connection_in_step(site: Site) -> None:
    rounds = 8
    for number in range(rounds):
        site.push("pushes", number=number, queue="first")
    site.start("--concurrency", "1", "--queue", "first,default")
    site.noted("quick", rounds - 1, within_s=60)
    operator = site.queue.operator()
    eventually(lambda: not site.queue.counts("first").size, "all of them end", within_s=30)
    operator.pause("default")
    site.push("quick", number=99, queue="first")
    site.noted("quick", 99)
    assert site.stop() == [0], site.log()
    failed = operator.failed(limit=100)
    assert len(failed) == rounds
    assert all("imeout" in (job.last_error or "") for job in failed), failed[0].last_error
    run = {line[1] for line in site.notes("quick")} - {"99"}
    left = {str(job.decode()["number"]) for job in _rest(site)}
    assert run | left == {str(number) for number in range(rounds)}


def _rest(site: Site) -> list[Job]:
    site.queue.operator().resume("default")
    found: list[Job] = []
    while jobs := site.queue.pop(n=500, lease=600):
        found += jobs
    return found
