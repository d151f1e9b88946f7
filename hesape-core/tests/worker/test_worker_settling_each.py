"""`--settle each`: every job is settled by itself, before its slot takes another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import StoreRefusedError
from hesape.jobs import Job
from hesape.records import Claim, Claimed, Counts, Key

if TYPE_CHECKING:
    from worker.conftest import Shop, UnsteadyDriver


class CountingDriver(MemoryDriver):
    """Counts how many jobs each call deletes, and deletes none while it refuses."""

    refusal: type[Exception] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.deleted: Counter[int] = Counter()

    def reserve(self, claim: Claim) -> Claimed:
        if claim.done:
            self.deleted[len(claim.done)] += 1
        return super().reserve(claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        if self.refusal is not None:
            raise self.refusal
        self.deleted[len(keys)] += 1
        return super()._delete(keys, repeat=repeat, tx=tx)


@pytest.fixture
def counting(shop: Shop) -> CountingDriver:
    driver = CountingDriver()
    shop.__init__(driver)  # type: ignore[misc]  # the same shop on another store
    return driver


def outcomes(shop: Shop) -> Counter[str]:
    return Counter(event.outcome for event in shop.events if event.kind == "attempted")  # type: ignore[attr-defined]


@pytest.mark.parametrize("settle", ["each", "batch"])
def test_each_is_one_deletion_a_job_and_a_batch_is_fewer(shop: Shop, counting: CountingDriver, settle: str) -> None:
    @shop.handler("note")
    def note() -> None: ...

    for _ in range(300):
        shop.push("note")
    shop.work(settle=settle)
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert outcomes(shop) == {"processed": 300}
    assert (counting.deleted == {1: 300}) == (settle == "each")
    assert sum(size * times for size, times in counting.deleted.items()) == 300


def test_a_job_is_gone_before_its_slot_takes_the_next(shop: Shop) -> None:
    seen: list[int] = []

    @shop.handler("look")
    def look() -> None:
        seen.append(shop.queue.counts().size)

    for _ in range(20):
        shop.push("look")
    shop.work(settle="each", concurrency=1)
    assert seen == list(range(20, 0, -1))


def test_a_job_that_was_marked_as_failed_is_reported_so(shop: Shop) -> None:
    @shop.handler("mark")
    def mark(job: Job) -> None:
        job.mark_as_failed()

    shop.push("mark")
    shop.work(settle="each")
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert outcomes(shop) == {"failed": 1}


def test_a_lost_answer_costs_nothing_and_a_lost_lease_is_reported(shop: Shop, unsteady: UnsteadyDriver) -> None:
    @shop.handler("unsure")
    def unsure() -> None:
        unsteady.answers_lost = 1

    @shop.handler("late")
    def late() -> None:
        shop.queue.operator().clear("default")

    shop.push("unsure")
    shop.work(settle="each", concurrency=1)
    shop.push("late")
    shop.work(settle="each", concurrency=1)
    assert outcomes(shop) == {"processed": 1, "lost": 1}


@pytest.mark.parametrize("refusal", [StoreRefusedError, RuntimeError])
def test_what_the_store_refuses_to_delete_is_left_to_its_lease(
    shop: Shop, counting: CountingDriver, refusal: type[Exception]
) -> None:
    seen: list[int] = []

    @shop.handler("note")
    def note(job: Job) -> None:
        seen.append(job.attempts)
        counting.refusal = refusal if job.attempts == 1 else None

    shop.push("note")
    shop.start(settle="each", lease_s=1.0)
    shop.until(lambda: shop.queue.counts().size == 0)
    shop.stop()
    assert seen == [1, 2]
    assert outcomes(shop) == {"unsettled": 1, "processed": 1}
