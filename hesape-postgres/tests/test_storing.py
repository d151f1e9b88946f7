from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from hesape.attributes import Attributes
from hesape.errors import (
    AlreadyQueuedError,
    DuplicateJobError,
    StoreBusyError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape.grants import system_grant
from hesape.jobs import Job, prepare, prepared_row
from hesape.queue import Queue
from hesape.records import Counts
from hesape_postgres.connections import Own, OwnConnection
from hesape_postgres.driver import PostgresDriver
from hesape_postgres.storing import COPY_FROM
from hesape_postgres.testing import PrivatePostgres

GRANT = system_grant("run", "acme")
Db = psycopg.Connection[tuple[Any, ...]]
SIZES = (2, COPY_FROM - 1, COPY_FROM, 3 * COPY_FROM)


def job(n: int = 0, **options: Any) -> Job:
    return Job.new(GRANT, "n", {"n": n}, **options)


@pytest.mark.parametrize("size", SIZES)
def test_a_bulk_that_meets_stored_jobs_stores_the_others(queue: Queue, size: int) -> None:
    pushed = [job(n) for n in range(size)]
    queue.push(GRANT, pushed[size // 2])
    queue.bulk(GRANT, pushed)
    queue.bulk(GRANT, pushed)
    assert queue.counts().pending == size


@pytest.mark.parametrize("size", SIZES)
def test_a_bulk_with_another_content_stores_nothing_and_names_the_index(queue: Queue, size: int) -> None:
    pushed = [job(n) for n in range(size)]
    queue.push(GRANT, Job.new(GRANT, "n", {"n": "other"}, id=pushed[1].id))
    with pytest.raises(DuplicateJobError) as caught:
        queue.bulk(GRANT, pushed)
    assert caught.value.index == 1
    assert queue.counts().pending == 1


@pytest.mark.parametrize("size", SIZES)
def test_mixed_due_times_and_priorities_are_kept_in_order(queue: Queue, driver: PostgresDriver, size: int) -> None:
    now = datetime.now(UTC)
    chance = random.Random(size)
    choices = (None, now - timedelta(days=1), now + timedelta(hours=1), now + timedelta(microseconds=1))
    pushed = [job(n, run_at=chance.choice(choices), priority=chance.choice((1, 100))) for n in range(size)]
    queue.bulk(GRANT, pushed)
    later = [each for each in pushed if each.run_at == now + timedelta(hours=1)]
    due = [each for each in pushed if each not in later]
    counts = queue.counts()
    assert (counts.pending, counts.delayed) == (len(due), len(later))
    popped = queue.pop(n=size)
    assert [each.id for each in popped] == [each.id for each in sorted(due, key=lambda each: each.priority or 0)]
    assert all((each.run_at or now) >= now - timedelta(seconds=1) for each in popped)


def test_a_bulk_takes_few_round_trips(driver: PostgresDriver, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.counts()
    waits: list[object] = []
    wait = OwnConnection.wait

    def counted(conn: OwnConnection, *args: Any, **kwargs: Any) -> Any:
        waits.append(args)
        return wait(conn, *args, **kwargs)

    monkeypatch.setattr(OwnConnection, "wait", counted)
    queue.bulk(GRANT, [job(n) for n in range(10_000)])
    assert len(waits) < 40
    assert queue.counts().pending == 10_000


@pytest.mark.parametrize("size", [1, *SIZES])
def test_a_unique_key_is_held_by_the_first_whatever_becomes_of_it(queue: Queue, size: int) -> None:
    keyed = Attributes(unique_for=60, unique_key="k")
    first, *others = [job(attributes=keyed), *(job() for _ in range(size - 1))]
    queue.bulk(GRANT, [*others, first])
    queue.push(GRANT, first)
    with pytest.raises(AlreadyQueuedError) as caught:
        queue.bulk(GRANT, [job(), job(attributes=keyed)])
    assert caught.value.index == 1
    for popped in queue.pop(n=size):
        popped.fail("Boom")
    with pytest.raises(AlreadyQueuedError):
        queue.push(GRANT, job(attributes=keyed))
    queue.retry(system_grant("hesape.failed.retry", "acme"), first.id)
    assert queue.counts().size == 1


def test_pushes_of_one_unique_key_at_once_let_one_in(opened: Callable[..., PostgresDriver]) -> None:
    keyed = Attributes(unique_for=60, unique_key="k")
    queues = [Queue(opened()) for _ in range(8)]
    queues[0].counts()
    outcomes: list[str] = []

    def push(queue: Queue) -> None:
        try:
            queue.push(GRANT, job(attributes=keyed))
            outcomes.append("stored")
        except AlreadyQueuedError:
            outcomes.append("refused")

    threads = [threading.Thread(target=push, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["stored"]
    assert queues[0].counts().size == 1


def test_an_id_that_is_held_uncommitted_elsewhere_blocks_no_longer_than_said(
    opened: Callable[..., PostgresDriver], postgres: PrivatePostgres
) -> None:
    driver = opened(lock_timeout=0.3)
    queue = Queue(driver)
    queue.counts()
    pushed = job()
    with psycopg.connect(postgres.url) as conn:
        queue.push(GRANT, pushed, tx=conn)
        start = time.monotonic()
        with pytest.raises(StoreBusyError):
            driver._store([prepared_row(prepare(GRANT, pushed))], None)
        assert 0.2 < time.monotonic() - start < 3
        conn.rollback()
    queue.push(GRANT, pushed)
    assert queue.counts().size == 1


@pytest.mark.parametrize("size", [1, *SIZES])
def test_a_read_only_server_refuses_a_push_and_stores_nothing(
    database: Callable[..., str], opened: Callable[..., PostgresDriver], size: int
) -> None:
    url = database()
    queue = Queue(opened(url=url))
    queue.push(GRANT, job())
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"alter database {conn.info.dbname} set default_transaction_read_only = on".encode())
    reader = Queue(opened(url=url))
    with pytest.raises(StoreRefusedError, match="25006"):
        reader.bulk(GRANT, [job(n) for n in range(size)])
    assert reader.counts().size == 1


def test_an_interrupted_statement_leaves_no_answer_for_the_next(queue: Queue, driver: PostgresDriver) -> None:
    """An exception that is raised into a thread, as a timeout is, while it waits for the server."""
    queue.push(GRANT, job())
    for round_ in range(40):
        own = driver._link.pool.take()
        pause = random.uniform(0, 0.004)
        interrupted = type("Interrupted", (BaseException,), {})
        wait = own.conn.wait

        def cut(gen: Any, *args: Any, wait: Any = wait, pause: float = pause, error: Any = interrupted) -> Any:
            end = time.monotonic() + pause

            def bounded() -> Any:
                ready = None
                while True:
                    if time.monotonic() >= end:
                        raise error
                    try:
                        ready = yield gen.send(ready)
                    except StopIteration as stop:
                        return stop.value

            return wait(bounded(), *args)

        own.conn.wait = cut  # type: ignore[method-assign]
        driver._link.pool.give(own)
        with contextlib.suppress(interrupted):
            queue.push(GRANT, job(round_))
        own.conn.__dict__.pop("wait", None)
        assert driver.read_flag("flag:none") is None
        assert driver.ping().startswith("PostgreSQL")
    assert len(driver._link.pool._all) <= 10


def test_what_was_committed_and_cannot_be_announced_is_no_failure(
    queue: Queue, driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    unique = prepared_row(prepare(GRANT, job(attributes=Attributes(unique_for=60))))
    queue.push(GRANT, job())
    [popped] = queue.pop()
    popped.fail("bad")

    def one_connection(call: Callable[[], None]) -> None:
        with monkeypatch.context() as patched:
            takes = iter([driver._link.pool.take])

            def take() -> Own:
                for real in takes:
                    return real()
                raise StoreUnavailableError

            patched.setattr(driver._link.pool, "take", take)
            call()

    one_connection(lambda: driver._store([unique], None))
    one_connection(lambda: driver.retry("acme", [popped.id]))
    assert queue.counts() == Counts(2, 0, 0, 0)


def test_a_call_that_waits_for_a_connection_is_told_when_the_driver_is_closed(
    opened: Callable[..., PostgresDriver],
) -> None:
    driver = opened(pool_size=1, pool_timeout=60)
    driver.now()
    pool = driver._link.pool
    held = pool.take()
    told: list[str] = []

    def wait() -> None:
        with pytest.raises(StoreUnavailableError, match="closed") as caught:
            driver.now()
        told.append(str(caught.value))

    thread = threading.Thread(target=wait)
    thread.start()
    while not pool._changed._waiters:  # type: ignore[attr-defined]
        time.sleep(0.001)
    driver.close()
    thread.join(10)
    assert len(told) == 1
    pool.give(held)
    assert held.conn.closed
    assert driver.now() > 0  # the same object works again
