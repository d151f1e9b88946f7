from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from hesape.coordination import Flag
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, new_token
from hesape_postgres.driver import PostgresDriver

GRANT = system_grant("run", "acme")
ENCODINGS = (
    "encoding 'UTF8' locale 'C'",
    "encoding 'LATIN1' locale 'C'",
    "encoding 'SQL_ASCII' locale 'C'",
    "encoding 'EUC_JP' locale 'C'",
)
NAMES = ("plain", "é", "日本", "😀", "back\\slash", "\\u0041 \\xe9", "100% 'quoted' \"x\"")


@pytest.fixture(params=ENCODINGS, ids=lambda clauses: clauses.split("'")[1])
def queue(request: pytest.FixtureRequest, database: Callable[..., str], opened: Callable[..., PostgresDriver]) -> Queue:
    return Queue(opened(url=database(request.param)), name="main")


def test_names_payloads_and_errors_come_back_as_they_were(queue: Queue) -> None:
    for name in NAMES:
        for push in (
            lambda job: queue.push(GRANT, job),
            lambda job: queue.bulk(GRANT, [job, Job.new(GRANT, "other", queue="rest")]),
            lambda job: queue.bulk(GRANT, [job, *(Job.new(GRANT, "other", queue="rest") for _ in range(60))]),
        ):
            push(Job.new(GRANT, name, {"text": name}, display_name=name))
            (job,) = queue.pop()
            assert (job.name, job.display_name, job.decode()) == (name, name, {"text": name})
            job.release()
            (job,) = queue.pop()
            job.fail(ValueError(f"{name}: 😀 é\x00"))
            (failed,) = queue.failed(system_grant("hesape.failed.read", "acme"))
            assert failed.name == name
            assert (failed.last_error or "").startswith(f"ValueError: {name}: 😀 é")
            queue.operator().flush()


def test_lent_connections_of_any_client_encoding_can_push(queue: Queue) -> None:
    driver: Any = queue.driver
    queue.counts()
    for encoding in ("UTF8", "LATIN1", "SQL_ASCII"):
        with psycopg.connect(driver._link.settings.url) as conn:
            try:
                conn.execute(f"set client_encoding = '{encoding}'".encode())
            except psycopg.errors.FeatureNotSupported:
                continue  # no conversion between these two
            stored = queue.push(GRANT, Job.new(GRANT, "日本 é 😀"), tx=conn)
            queue.push(GRANT, stored, tx=conn)
            queue.bulk(GRANT, [stored, Job.new(GRANT, "日本 é 😀")], tx=conn)
        assert [job.name for job in queue.pop(n=5)] == ["日本 é 😀"] * 2
        with psycopg.connect(driver._link.settings.url) as conn:
            conn.execute(f"set client_encoding = '{encoding}'".encode())
            queue.push(GRANT, Job.new(GRANT, "n"))
            (job,) = queue.pop()
            job.fail("日本 é 😀", tx=conn)
        assert [failed.last_error for failed in queue.operator().failed()] == ["日本 é 😀"]
        queue.operator().flush()


def test_flags_locks_and_workers_keep_their_text(queue: Queue) -> None:
    driver = queue.driver
    for text in NAMES:
        flag = Flag(driver, "f")
        flag.set(text)
        assert flag.value() == text
        assert driver.lock("lock:l", text, 60_000_000)
        assert not driver.lock("lock:l", "another", 60_000_000)
        assert driver.unlock("lock:l", text)
        driver.beat(text, 60_000_000, 60_000_000)
        queue.push(GRANT, Job.new(GRANT, "n"))
        assert len(driver.reserve(Claim(("default",), 1, 60_000_000, new_token(), text)).rows) == 1
        assert [(row.worker, row.held) for row in driver.workers()] == [(text, 1)]
        assert driver.retire(text) == 1
        queue.operator().clear("default")


def test_queues_differ_by_case_and_are_sorted_by_code_point(queue: Queue) -> None:
    for name in ("b", "B", "a", "A", "_", "-"):
        queue.push(GRANT, Job.new(GRANT, "n", queue=name))
    assert queue.queues() == sorted(("b", "B", "a", "A", "_", "-"))
    assert queue.counts("b").size == 1
