"""A delivery that couldn't be settled isn't renewed: the end of its lease redelivers it while its worker lives."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hesape
from hesape.drivers.memory.driver import MemoryDriver
from hesape.errors import StoreRefusedError
from hesape.jobs import Job

if TYPE_CHECKING:
    from worker.conftest import Shop

LEASE_S = 1.5


class FullOnce(MemoryDriver):
    """A store that refuses the first settlement, by an error of the contract or any other."""

    error: Exception = StoreRefusedError("full")
    refused = 0

    def _refuse(self) -> None:
        if not self.refused:
            self.refused += 1
            raise self.error

    def _release(self, *args: Any, **more: Any) -> bool:
        self._refuse()
        return super()._release(*args, **more)

    def _fail(self, *args: Any, **more: Any) -> bool:
        self._refuse()
        return super()._fail(*args, **more)


@pytest.fixture
def full(shop: Shop) -> Iterator[FullOnce]:
    driver = FullOnce()
    shop.__init__(driver)  # type: ignore[misc]  # the same shop on another store
    yield driver
    shop.close()


@pytest.mark.parametrize("cause", [ValueError, hesape.FailJob])
@pytest.mark.parametrize(
    "error", [StoreRefusedError("full"), OverflowError("a fault of the driver")], ids=["refused", "fault"]
)
def test_what_the_store_refused_to_settle_is_redelivered(
    shop: Shop, full: FullOnce, error: Exception, cause: type[Exception]
) -> None:
    full.error = error
    ran: list[int] = []

    @shop.handler("work", tries=5, backoff=0)
    def work(job: Job) -> None:
        ran.append(job.attempts)
        if job.attempts == 1:
            raise cause("first")

    shop.push("work")
    shop.start(lease_s=LEASE_S)
    shop.until(lambda: ran == [1, 2], within=8)
    shop.until(lambda: shop.queue.counts().size == 0)


def test_what_was_rolled_back_after_its_lease_was_renewed_is_redelivered(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    queue = hesape.connect(f"sqlite:///{file}")
    shop.__init__(queue.driver)  # type: ignore[misc]  # the same shop on another store
    ran: list[int] = []

    @shop.handler("work", tries=5)
    def work(job: Job) -> None:
        ran.append(job.attempts)
        if job.attempts > 1:
            return
        first = job.record().reserved_until
        shop.until(lambda: job.extend(0) != first)
        time.sleep(LEASE_S / 3)  # so that the renewed lease outlives by far what the worker is sure of
        lent = sqlite3.connect(file, timeout=5)
        lent.execute("BEGIN IMMEDIATE")
        job.delete(tx=lent)
        lent.rollback()
        lent.close()

    shop.push("work")
    shop.start(lease_s=LEASE_S)
    shop.until(lambda: ran == [1, 2], within=8)
    shop.until(lambda: shop.queue.counts().size == 0)
    shop.close()
    queue.close()


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, ValueError])
def test_an_exception_that_cant_say_what_it_is_costs_an_attempt_like_any_other(
    shop: Shop, raised: type[BaseException]
) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise raised

    @shop.handler("work", tries=2, backoff=0)
    def work() -> None:
        raise Mute

    shop.push("work")
    shop.work()
    assert shop.queue.counts().failed == 1
