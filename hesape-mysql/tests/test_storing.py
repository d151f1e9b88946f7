from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import hesape
from hesape.config import ConnectionSettings
from hesape.errors import (
    AlreadyQueuedError,
    DuplicateJobError,
    OutcomeUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql import storing
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.testing import MySQLHarness, PrivateMariaDB


def job(grant: Grant, **how: Any) -> hesape.Job:
    return hesape.Job.new(grant, "n", **how)


def test_a_bulk_leaves_out_what_is_stored_and_takes_the_rest(queue: Queue, grant: Grant) -> None:
    old = queue.bulk(grant, [job(grant, payload={"n": n}) for n in range(3)])
    again = [job(grant, payload={"n": n}, id=stored.id) for n, stored in enumerate(old)]
    fresh = [job(grant, payload={"n": n}) for n in range(3, 600)]
    queue.bulk(grant, [*again[:2], *fresh, again[2]])
    assert [popped.decode()["n"] for popped in queue.pop(n=1000)] == list(range(600))


def test_a_bulk_with_one_stranger_stores_nothing_and_names_its_place(queue: Queue, grant: Grant) -> None:
    old = queue.push(grant, job(grant, payload={"n": 1}))
    batch = [job(grant) for _ in range(700)]
    batch[650] = job(grant, payload={"n": 2}, id=old.id)
    with pytest.raises(DuplicateJobError) as caught:
        queue.bulk(grant, batch)
    assert caught.value.index == 650
    assert queue.counts().pending == 1


def test_an_id_that_a_bulk_repeats_is_one_job_or_at_fault(queue: Queue, grant: Grant) -> None:
    first = job(grant, payload={"n": 1})
    queue.bulk(grant, [first, job(grant), job(grant, payload={"n": 1}, id=first.id)])
    assert queue.counts().pending == 2
    other = job(grant, payload={"n": 1})
    with pytest.raises(DuplicateJobError) as caught:
        queue.bulk(grant, [other, job(grant), job(grant, payload={"n": 2}, id=other.id)])
    assert caught.value.index == 2
    assert queue.counts().pending == 2


def test_a_unique_key_outlives_its_job_and_comes_free_with_time(queue: Queue, grant: Grant) -> None:
    alone = hesape.Attributes(unique_for=0.5, unique_key="k")
    first = queue.push(grant, job(grant, attributes=alone))
    queue.push(grant, job(grant, attributes=alone, id=first.id))
    queue.pop()[0].delete()
    with pytest.raises(AlreadyQueuedError) as caught:
        queue.bulk(grant, [job(grant), job(grant, attributes=alone)])
    assert caught.value.index == 1
    assert queue.counts().size == 0
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            queue.push(grant, job(grant, attributes=alone))
            break
        except AlreadyQueuedError:
            time.sleep(0.05)
    assert queue.counts().pending == 1


def test_who_takes_a_key_whose_time_is_over_has_it_however_soon_its_own_is_over(queue: Queue, grant: Grant) -> None:
    brief = hesape.Attributes(unique_for=0.000001, unique_key="k")
    for _ in range(20):
        queue.push(grant, job(grant, attributes=brief))
    assert queue.counts().pending == 20


def test_of_many_who_push_one_unique_key_one_succeeds(queue: Queue, grant: Grant) -> None:
    alone = hesape.Attributes(unique_for=60, unique_key="k")
    queue.queues()

    def push(_: int) -> bool:
        try:
            queue.push(grant, job(grant, attributes=alone))
        except AlreadyQueuedError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(push, range(8))) == 1
    assert queue.counts().size == 1


def test_many_who_push_one_id_store_one_job(queue: Queue, grant: Grant) -> None:
    same = job(grant, payload={"n": 1})
    queue.queues()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: queue.bulk(grant, [same, job(grant)]), range(8)))
    assert queue.counts().size == 9


@pytest.mark.parametrize("later", [False, True])
def test_a_bulk_of_several_statements_keeps_its_order_whatever_its_ids(
    queue: Queue, grant: Grant, connect: Callable[..., Any], *, later: bool
) -> None:
    """O1: its own way, lent, and beside what is stored; due at once, or all at one moment that comes."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    chance = random.Random(seed)
    run_at = datetime.now(UTC) + timedelta(seconds=3) if later else None

    def shuffled() -> list[hesape.Job]:
        return chance.sample([job(grant, run_at=run_at) for _ in range(1_200)], 1_200)

    alone, lent, beside = shuffled(), shuffled(), shuffled()
    queue.bulk(grant, alone)
    conn = connect()
    queue.bulk(grant, lent, tx=conn)
    conn.commit()
    queue.bulk(grant, [alone[0], *beside])
    pushed = [*alone, *lent, *beside]
    popped: list[str] = []
    deadline = time.monotonic() + 60
    while len(popped) < len(pushed) and time.monotonic() < deadline:
        popped += [found.id for found in queue.pop(n=1_000)]
        if not popped:
            time.sleep(0.05)
    assert popped == [made.id for made in pushed]


def test_statements_stay_below_the_servers_packet(queue: Queue, grant: Grant, harness: MySQLHarness) -> None:
    harness._as_root("set global max_allowed_packet = 1048576")
    try:
        queue.driver.close()
        payload = {"text": "x" * 30_000}
        queue.bulk(grant, [job(grant, payload=payload) for _ in range(60)])
        assert queue.counts().pending == 60
        assert {popped.decode()["text"] for popped in queue.pop(n=60)} == {payload["text"]}
    finally:
        harness._as_root("set global max_allowed_packet = 16777216")
        queue.driver.close()


def test_a_chunk_has_at_most_500_rows_and_fits() -> None:
    rows = [(n, hesape.records.NewRow("", b"x" * 1000, "", "", "", 0, None, 0, None)) for n in range(1_200)]
    assert [len(chunk) for chunk in storing._chunks(rows, 16_777_216)] == [500, 500, 200]
    assert max(len(chunk) for chunk in storing._chunks(rows, 100_000)) * 3_500 <= 100_000


def test_immediate_jobs_can_be_popped_at_once(queue: Queue, grant: Grant) -> None:
    """Case 20: microseconds everywhere, so that nothing is due in the future and nothing claimed isn't found."""
    for n in range(200):
        queue.push(grant, job(grant, payload={"n": n}))
        [popped] = queue.pop(lease=0.5)
        assert popped.decode()["n"] == n
        popped.delete()


def test_a_read_only_server_says_so_and_keeps_what_it_has(
    queue: Queue, grant: Grant, harness: MySQLHarness, namespace: str
) -> None:
    queue.push(grant, job(grant))
    with harness.full(namespace), pytest.raises(StoreRefusedError, match="takes no writes"):
        queue.push(grant, job(grant))
    assert queue.counts().pending == 1


@pytest.fixture(scope="module")
def small() -> Iterator[PrivateMariaDB]:
    """A server whose data file can't grow."""
    with PrivateMariaDB(
        innodb_file_per_table=0, innodb_data_file_path="ibdata1:12M:autoextend:max:20M", innodb_log_file_size=4194304
    ) as server:
        yield server


def test_a_full_server_says_so_stores_nothing_and_keeps_what_it_has(small: PrivateMariaDB, grant: Grant) -> None:
    """E3 with a data file that can't grow. Without room even for its undo log the server may refuse a claim, too."""
    with Queue(MySQLDriver.from_settings(ConnectionSettings(name="main", driver="mysql", url=small.url))) as queue:
        payload = {"text": "x" * 30_000}
        pushed = 0
        refused = ""
        while not refused and pushed < 2_000:
            try:
                queue.bulk(grant, [job(grant, payload=payload) for _ in range(10)])
                pushed += 10
            except StoreRefusedError as error:
                refused = str(error)
        assert "full" in refused
        assert pushed > 0
        assert queue.counts().pending == pushed
        drained = 0
        with suppress(StoreRefusedError):
            while found := queue.pop(n=10):
                drained += len(found) - len(queue.driver.delete_jobs(found))
        assert queue.counts().size + drained == pushed


@contextmanager
def killing(harness: MySQLHarness, seed: int) -> Iterator[None]:
    """End every session now and then."""
    chance, stop = random.Random(seed), threading.Event()

    def kill() -> None:
        while not stop.wait(chance.random() * 0.05):
            harness.cut_sessions()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_sessions_that_are_killed_at_any_moment_lose_and_double_nothing(
    open_driver: Callable[..., MySQLDriver], grant: Grant, harness: MySQLHarness
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    queue = Queue(open_driver())
    queue.queues()
    seen: list[int] = []

    def insist(call: Callable[[], Any]) -> Any:
        while True:
            with suppress(StoreUnavailableError, OutcomeUnknownError):  # whatever else comes out is a lie
                return call()

    with killing(harness, seed):
        for n in range(0, 300, 3):
            batch = [job(grant, payload={"n": n + k}) for k in range(3)]
            insist(lambda batch=batch: queue.bulk(grant, batch))  # type: ignore[misc]
        while len(seen) < 300:
            for popped in insist(lambda: queue.pop(n=7)):
                seen.append(popped.decode()["n"])
                insist(popped.delete)
    assert sorted(seen) == list(range(300))
    assert queue.counts().size == 0
