"""What must not grow with the store (O2), measured beside an empty one in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import pytest
import redis

from hesape.jobs import prepare, prepared_row
from hesape.records import Claim, Key, new_token
from hesape_redis.driver import RedisDriver
from hesape_redis.scripts import ALL
from hesape_redis.testing import PrivateRedis

SCHEDULED, FAILED = 200_000, 100_000


@pytest.fixture
def bare_server() -> Iterator[PrivateRedis]:
    """A server that writes nothing to a disk: what is measured is its work."""
    with PrivateRedis(appendonly=False) as server:
        yield server


def pop(driver: RedisDriver) -> float:
    """How long a pop takes and, if it found a job, its deletion; in seconds."""
    token = new_token()
    start = time.perf_counter()
    rows = driver.reserve(Claim(("default",), 1, 60_000_000, token)).rows
    if rows:
        driver._delete([Key(rows[0].id, token)], repeat=False, tx=None)
    return time.perf_counter() - start


def compared(laden: RedisDriver, empty: RedisDriver, n: int) -> tuple[float, float]:
    """The medians of pops on two stores, taken in turns: what else this machine does slows both."""
    found = [(pop(laden), pop(empty)) for _ in range(n)]
    return median(one for one, _ in found), median(other for _, other in found)


def fill(desk: Any, n: int, delay_us: int) -> None:
    """Store many jobs, whose preparing isn't what is measured."""
    row = prepared_row(prepare(desk.grant, desk.job()))
    for first in range(0, n, 5_000):
        rows = []
        for number in range(first, first + 5_000):
            job_id = f"00000000-0000-7000-8000-{number + delay_us:012d}"
            rows.append(
                row._replace(
                    id=job_id, delay_us=delay_us, envelope=row.envelope.replace(row.id.encode(), job_id.encode())
                )
            )
        desk.driver._store(rows, None)


def test_scheduled_and_failed_jobs_cost_a_pop_nothing(
    bare_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any
) -> None:
    desk, bare = at(opened(bare_server.url)), at(opened(bare_server.url, prefix="bare:"))
    driver = desk.driver
    fill(desk, FAILED, 0)
    while rows := driver.reserve(Claim(("default",), 1000, 60_000_000, token := new_token())).rows:
        assert driver._fail(Key(rows[0].id, token), error=None, exceptions=1, tx=None)
        with redis.Redis.from_url(bare_server.url) as client, client.pipeline(transaction=False) as pipeline:
            for row in rows[1:]:
                pipeline.execute_command("EVALSHA", ALL["fail"].sha, 1, driver.base, row.id, token, 1)
            assert set(pipeline.execute()) == {1}
    fill(desk, SCHEDULED, 3_600_000_000)
    counts = desk.queue.counts()
    assert (counts.delayed, counts.failed) == (SCHEDULED, FAILED)
    for jobs in (0, 400):
        for one in (desk, bare):
            if jobs:
                one.bulk(jobs)
        compared(driver, bare.driver, 50)
        laden, empty = compared(driver, bare.driver, 300)
        assert laden < 2 * empty, f"{jobs} due: {empty * 1e6:.0f} -> {laden * 1e6:.0f} us"
        assert laden < 0.02

    start = time.perf_counter()
    page = desk.queue.operator().failed(limit=50)
    assert len(page) == 50
    assert len(desk.queue.operator().failed(limit=50, before=page[-1])) == 50
    desk.queue.oldest_pending()
    assert time.perf_counter() - start < 0.5
    assert driver.prune(None) == FAILED
    assert driver.clear("default") == SCHEDULED + 50


def test_a_job_is_small_beside_its_payload(desk: Any, client: Any) -> None:
    """A guard against a second copy of the envelope: a thousand jobs of 10,000 bytes."""
    payload = {"text": "x" * 10_000}
    before = client.info("memory")["used_memory"]
    desk.queue.bulk(desk.grant, [desk.job(payload) for _ in range(1_000)])
    each = (client.info("memory")["used_memory"] - before) / 1_000
    assert each < 14_000
    desk.driver.clear("default")
