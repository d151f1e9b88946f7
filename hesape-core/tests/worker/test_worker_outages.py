"""A store that is away, and leases that end."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from hesape.errors import OutcomeUnknownError, StoreUnavailableError
from hesape.jobs import Job
from hesape.records import Counts
from hesape.worker import lifeline

if TYPE_CHECKING:
    from worker.conftest import Shop, UnsteadyDriver


def test_while_the_store_is_away_running_jobs_go_on_and_are_settled_after_it(
    shop: Shop, unsteady: UnsteadyDriver, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    seen: list[int] = []

    @shop.handler("long")
    def long(job: Job) -> None:
        seen.append(job.attempts)
        assert release.wait(10)

    @shop.handler("bad", backoff=100)
    def bad() -> None:
        assert release.wait(10)
        raise ValueError

    shop.push("long")
    shop.push("bad")
    with caplog.at_level(logging.WARNING, "hesape.worker"):
        shop.start(lease_s=30)
        shop.until(lambda: shop.queue.counts().reserved == 2)
        unsteady.away = True
        release.set()
        time.sleep(1)
        asked, unsteady.asked = unsteady.asked, 0
        assert asked < 80
        unsteady.away = False
        shop.until(lambda: shop.queue.counts() == Counts(0, 1, 0, 0))
        shop.push("long")
        shop.until(lambda: shop.queue.counts() == Counts(0, 1, 0, 0))
    assert seen == [1, 1]
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("connection")]
    assert [("take it" in line, "is back" in line) for line in lines] == [(True, False), (False, True)]


LOST_AS = pytest.mark.parametrize("lost_as", [OutcomeUnknownError, RuntimeError])
"""What a driver should raise for it, and what one with a fault does."""


@LOST_AS
def test_a_lost_answer_costs_no_job_and_no_attempt(
    shop: Shop, unsteady: UnsteadyDriver, lost_as: type[Exception]
) -> None:
    unsteady.lost_as = lost_as
    seen: Counter[int] = Counter()

    @shop.handler("count")
    def count(job: Job, number: int) -> None:
        assert job.attempts == 1
        seen[number] += 1
        if number % 50 == 0:
            unsteady.answers_lost = 2

    for number in range(1_000):
        shop.push("count", {"number": number})
    shop.work()
    assert seen == Counter(range(1_000))
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    outcomes = {event.outcome for event in shop.events if event.kind == "attempted"}  # type: ignore[attr-defined]
    assert outcomes == {"processed"}


@LOST_AS
def test_a_deletion_whose_answer_was_lost_counts_as_done_when_it_rides_along_with_a_claim(
    shop: Shop, unsteady: UnsteadyDriver, lost_as: type[Exception]
) -> None:
    unsteady.lost_as = lost_as

    @shop.handler("note")
    def note() -> None:
        unsteady.answers_lost = 1

    shop.start(sleep_s=0.012)  # the next claim is due in the pause after the deletion without an answer

    def attempted() -> int:
        return sum(event.kind == "attempted" for event in shop.events)

    for _ in range(20):
        before = attempted()
        shop.push("note")
        shop.until(partial(lambda before: attempted() == before + 1, before))
    outcomes = [event.outcome for event in shop.events if event.kind == "attempted"]  # type: ignore[attr-defined]
    assert Counter(outcomes) == {"processed": 20}


def test_a_worker_that_starts_while_the_store_is_away_works_when_it_is_back(
    shop: Shop, unsteady: UnsteadyDriver
) -> None:
    @shop.handler("note")
    def note() -> None: ...

    shop.push("note")
    unsteady.away = True
    shop.start()
    time.sleep(0.3)
    unsteady.away = False
    shop.until(lambda: shop.queue.counts().size == 0)


@pytest.mark.parametrize("timeout", [6, -1])
def test_a_job_that_runs_longer_than_its_lease_keeps_it(shop: Shop, timeout: float) -> None:
    seen: list[int] = []

    @shop.handler("spin", timeout=timeout)
    def spin(job: Job) -> None:
        seen.append(job.attempts)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            sum(range(1_000))

    shop.push("spin")
    shop.start(lease_s=0.8)
    shop.start(lease_s=0.8)
    shop.until(lambda: shop.queue.counts().size == 0)
    assert seen == [1]


def test_a_worker_whose_lease_couldnt_be_renewed_in_time_says_so(
    shop: Shop, unsteady: UnsteadyDriver, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    @shop.handler("long")
    def long() -> None:
        assert release.wait(20)

    shop.push("long")
    with caplog.at_level(logging.WARNING, "hesape.worker"):
        shop.start(lease_s=1.0)
        shop.until(lambda: shop.queue.counts().reserved == 1)
        unsteady.away = True
        time.sleep(1.2)
        unsteady.away = False
        shop.until(lambda: "its leases of 1 s weren't renewed for" in caplog.text)
        release.set()
        shop.until(lambda: shop.queue.counts().size == 0)


def test_a_stale_settlement_changes_nothing_and_is_reported(shop: Shop) -> None:
    @shop.handler("note")
    def note(job: Job) -> None:
        if job.attempts == 1:
            shop.queue.operator().clear("default")

    job = shop.push("note")
    shop.work()
    assert shop.kinds(job)[-1] == "attempted"
    assert [event.outcome for event in shop.events if event.kind == "attempted"] == ["lost"]  # type: ignore[attr-defined]


def test_a_worker_of_which_the_store_hears_nothing_claims_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    @shop.handler("note")
    def note() -> None: ...

    def unheard(*_: object) -> frozenset[str]:
        raise StoreUnavailableError

    monkeypatch.setattr(lifeline, "SILENT_S", 0.5)
    worker = shop.start(lease_s=0.6)
    shop.push("note")
    shop.until(lambda: shop.queue.counts().size == 0)
    with monkeypatch.context() as patch:
        patch.setattr(shop.driver, "beat", unheard)
        shop.until(lambda: not worker._lifeline.vouched)
        shop.push("note")
        time.sleep(0.3)
        assert shop.queue.counts() == Counts(1, 0, 0, 0)
    shop.until(lambda: shop.queue.counts().size == 0)
