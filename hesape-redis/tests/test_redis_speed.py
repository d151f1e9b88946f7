"""What must not grow with the store (O2), measured beside an empty one in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import redis

from hesape.jobs import prepare, prepared_row
from hesape.records import Claim, Key, new_token
from hesape_redis.driver import RedisDriver
from hesape_redis.scripts import ALL
from hesape_redis.testing import PrivateRedis

SCHEDULED, FAILED = 200_000, 100_000


def pops(driver: RedisDriver, n: int) -> list[float]:
    """How long each pop and deletion of one job took, in seconds."""
    found = []
    for _ in range(n):
        token = new_token()
        start = time.perf_counter()
        [row] = driver.reserve(Claim(("default",), 1, 60_000_000, token)).rows
        driver._delete([Key(row.id, token)], repeat=False, tx=None)
        found.append(time.perf_counter() - start)
    return found


def empty_pops(driver: RedisDriver, n: int) -> list[float]:
    found = []
    for _ in range(n):
        start = time.perf_counter()
        assert driver.reserve(Claim(("default",), 1, 60_000_000, new_token())).rows == []
        found.append(time.perf_counter() - start)
    return found


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
    own_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any
) -> None:
    desk = at(opened(f"{own_server.url}"))
    driver = desk.driver
    desk.bulk(600)
    pops(driver, 100)
    before = median(pops(driver, 200))
    driver.clear("default")
    before_empty = median(empty_pops(driver, 200))

    fill(desk, FAILED, 0)
    while rows := driver.reserve(Claim(("default",), 1000, 60_000_000, token := new_token())).rows:
        assert driver._fail(Key(rows[0].id, token), error=None, exceptions=1, tx=None)
        with redis.Redis.from_url(own_server.url) as client, client.pipeline(transaction=False) as pipeline:
            for row in rows[1:]:
                pipeline.execute_command("EVALSHA", ALL["fail"].sha, 1, driver.base, row.id, token, 1)
            assert set(pipeline.execute()) == {1}
    fill(desk, SCHEDULED, 3_600_000_000)
    counts = desk.queue.counts()
    assert (counts.delayed, counts.failed) == (SCHEDULED, FAILED)
    after_empty = median(empty_pops(driver, 200))
    desk.bulk(600)
    after = sorted(pops(driver, 200))
    assert median(after) < 2 * before, f"{before * 1e6:.0f} -> {median(after) * 1e6:.0f} us"
    assert after_empty < 2 * before_empty, f"{before_empty * 1e6:.0f} -> {after_empty * 1e6:.0f} us"
    assert after[190] < 0.02

    start = time.perf_counter()
    page = desk.queue.operator().failed(limit=50)
    assert len(page) == 50
    assert len(desk.queue.operator().failed(limit=50, before=page[-1])) == 50
    desk.queue.oldest_pending()
    assert time.perf_counter() - start < 0.1
    assert driver.prune(None) == FAILED
    assert driver.clear("default") == SCHEDULED + 400


def test_a_job_is_small_beside_its_payload(desk: Any, client: Any) -> None:
    """A guard against a second copy of the envelope: a thousand jobs of 10,000 bytes."""
    payload = {"text": "x" * 10_000}
    before = client.info("memory")["used_memory"]
    desk.queue.bulk(desk.grant, [desk.job(payload) for _ in range(1_000)])
    each = (client.info("memory")["used_memory"] - before) / 1_000
    assert each < 14_000
    desk.driver.clear("default")
