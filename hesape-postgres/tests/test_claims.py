from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from hesape import retry
from hesape.errors import OutcomeUnknownError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Key, new_token
from hesape_postgres import claim_statements, records, statements
from hesape_postgres.driver import PostgresDriver

GRANT = system_grant("run", "acme")
MARKED = (claim_statements.STEP_MARKED, claim_statements.CLAIM_MARKED)
MINUTE_US = 60_000_000


def jobs(count: int, **options: Any) -> list[Job]:
    return [Job.new(GRANT, "n", {"n": n}, **options) for n in range(count)]


def claim(n: int = 1, **options: Any) -> Claim:
    return Claim(**{"queues": ("default",), "n": n, "lease_us": MINUTE_US, "token": new_token(), **options})


HOSTILE = [
    {},
    {"enable_nestloop": "off", "enable_seqscan": "on"},
    {"enable_hashjoin": "on", "enable_nestloop": "off", "enable_mergejoin": "off"},
    {"enable_mergejoin": "on", "enable_nestloop": "off", "enable_hashjoin": "off"},
    {"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_sort": "off", "enable_material": "off"},
    {"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "on"},
    {"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off", "enable_seqscan": "on"},
    {"plan_cache_mode": "force_custom_plan", "enable_seqscan": "on"},
]


@pytest.mark.parametrize(
    "marked", ["", "before", "behind"], ids=lambda marked: f"marks-{marked}" if marked else "plain"
)
@pytest.mark.parametrize("settings", HOSTILE, ids=lambda settings: ",".join(settings) or "own")
def test_a_claim_is_bounded_and_in_order_under_any_plan(
    queue: Queue, driver: PostgresDriver, settings: dict[str, str], marked: str
) -> None:
    if marked:
        for _ in range(2):
            driver._marks.clocked(["a", "b"], 1.0, time.monotonic())
        assert driver.reserve(claim(queues=("a", "b"))).rows == []
    if marked == "behind":  # as true of what no snapshot has seen yet
        driver._marks._marks = {name: mark._replace(priority=1000) for name, mark in driver._marks._marks.items()}
    pushed = [queue.bulk(GRANT, jobs(40, queue=name, priority=p)) for name in ("a", "b") for p in (3, 1)]
    with driver._link.own() as own:
        for name, value in settings.items():
            own.conn.execute(f"set {name} = {value}".encode())
    # The pool hands out the connection used last: the one that was set up
    first = driver.reserve(claim(n=30, queues=("b", "a")))
    assert [row.id for row in first.rows] == [job.id for job in pushed[3][:30]]
    second = driver.reserve(claim(n=60, queues=("b", "a"), done=tuple(Key(r.id, b"x" * 16) for r in first.rows)))
    expected = [*pushed[3][30:], *pushed[2], *pushed[1][:10]]
    assert [row.id for row in second.rows] == [job.id for job in expected]
    assert len(second.lost) == 30


def test_no_plan_of_a_claim_sorts_or_reads_a_whole_table(queue: Queue, driver: PostgresDriver) -> None:
    driver.now()  # plans are made while the tables are empty, as in life
    params = {
        **records.keys([Key(job.id, b"x" * 16) for job in jobs(3)]),
        "queues": "{default}",
        "priorities": "{100}",
        "dues": "{5}",
        "seqs": "{5}",
        "ripes": "{5}",
        "leases": "{5}",
        "snapshots": '{"3:5:3,4"}',
        "servers": "{0}",
        "n": 5,
        "lease": 1,
        "token": "0" * 32,
        "worker": "w",
    }
    text = ""
    for filled in (False, True):
        if filled:
            queue.bulk(GRANT, jobs(1000))
        with driver._link.own() as own:
            for statement in (statements.DELETE, claim_statements.STEP, claim_statements.CLAIM, *MARKED):
                named = {name: value for name, value in params.items() if f"%({name})" in statement}
                plan = own.conn.execute(b"explain " + driver._link.sql[statement], named).fetchall()
                text = "\n".join(line for (line,) in plan)
                assert "Seq Scan" not in text, text
                assert "_pkey" in text
                if statement in MARKED:  # sorts what arrived since, and finds that by its index alone
                    assert text.count("_arrivals") == text.count("Sort Key"), text
                else:
                    assert "Sort" not in text, text


def test_a_serializable_default_neither_fails_a_claim_nor_a_settlement(
    database: Callable[..., str], opened: Callable[..., PostgresDriver]
) -> None:
    url = database()
    with psycopg.connect(url, autocommit=True) as conn:
        name = conn.info.dbname
        conn.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
    driver = opened(url=url)
    queue = Queue(driver)
    assert driver._link.look("show transaction_isolation") == [("read committed",)]
    queue.bulk(GRANT, jobs(300))
    done = _drain(lambda: Queue(opened(url=url)), workers=4, total=300)
    assert set(done.values()) == {1}
    assert len(done) == 300
    with psycopg.connect(url) as conn:
        conn.execute("select 1")
        assert conn.execute("show transaction_isolation").fetchone() == ("serializable",)
        queue.push(GRANT, Job.new(GRANT, "n"), tx=conn)
    assert queue.counts().pending == 1


def _drain(open_queue: Callable[[], Queue], *, workers: int, total: int) -> Counter[str]:
    done: Counter[str] = Counter()
    lock, deadline = threading.Lock(), time.monotonic() + 60

    def work() -> None:
        queue = open_queue()
        while done.total() < total and time.monotonic() < deadline:
            for job in queue.pop(n=7):
                assert job.attempts == 1
                job.delete()
                with lock:
                    done[job.id] += 1

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


class Crowd:
    """Pushers and poppers on one driver, and every error that one of them met, repeated by core or not."""

    def __init__(self, driver: PostgresDriver, seed: int, total: int) -> None:
        self.driver, self.queue = driver, Queue(driver)
        self.seed, self.total = seed, total
        self.done: Counter[str] = Counter()
        self.errors: list[BaseException] = []
        self.lock = threading.Lock()
        self.deadline = time.monotonic() + 90

    def push(self, number: int) -> None:
        chance = random.Random(self.seed + number)
        for _ in range(0, self.total // 3, 25):
            batch = [
                Job.new(GRANT, "n", {"n": n}, queue=chance.choice("ab"), priority=chance.randrange(3))
                for n in range(25)
            ]
            if chance.random() < 0.5:
                self.queue.bulk(GRANT, batch)
                continue
            for job in batch:
                self.queue.later(GRANT, chance.choice((0, 0.01, 0.05)), job)

    def pop(self, number: int) -> None:
        chance = random.Random(self.seed + 100 + number)
        worker, held = f"w{number}", tuple[Key, ...]()
        while self.done.total() < self.total and time.monotonic() < self.deadline:
            wanted = claim(n=chance.randrange(1, 20), queues=("a", "b"), worker=worker, done=held)
            found = self.driver.reserve(wanted)
            with self.lock:
                self.done.update(key.id for key in held)
            assert not found.lost
            assert all(row.attempts == 1 for row in found.rows)
            held = tuple(Key(row.id, wanted.token) for row in found.rows)
            if chance.random() < 0.2:
                self.driver.rescue()
            if chance.random() < 0.2:
                self.driver.beat(worker, MINUTE_US, 10 * MINUTE_US)

    def run(self) -> None:
        def guarded(run: Callable[[int], None], number: int) -> None:
            try:
                run(number)
            except BaseException as error:
                self.errors.append(error)
                raise

        threads = [threading.Thread(target=guarded, args=(self.push, n)) for n in range(3)]
        threads += [threading.Thread(target=guarded, args=(self.pop, n)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def test_twelve_poppers_and_three_pushers_never_conflict(
    opened: Callable[..., PostgresDriver], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)  # noqa: T201 - a failure must tell how to repeat it
    crowd = Crowd(opened(pool_size=20), seed, total=1500)
    crowd.queue.counts()
    insist = retry.insist

    def watched(call: Any, **options: Any) -> Any:
        def once(repeat: bool) -> Any:  # noqa: FBT001 - the shape of insist
            try:
                return call(repeat)
            except BaseException as error:
                crowd.errors.append(error)
                raise

        return insist(once, **options)

    monkeypatch.setattr(retry, "insist", watched)
    crowd.run()
    assert crowd.errors == []
    assert len(crowd.done) == crowd.done.total() == crowd.total


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
def test_a_forged_count_stops_no_claim(
    queue: Queue, driver: PostgresDriver, db: psycopg.Connection[tuple[Any, ...]], number: int
) -> None:
    queue.bulk(GRANT, jobs(2))
    db.execute("update hesape_jobs set attempts = %s, lapses = %s", (number, number))
    assert len(driver.reserve(claim(n=2, lease_us=1)).rows) == 2
    again = driver.reserve(claim(n=2, worker="w"))
    assert len(again.rows) == 2
    assert driver.retire("w") == 2
    assert len(queue.pop(n=2)) == 2


def test_a_claim_that_is_refused_after_its_deletions_says_that_its_outcome_is_unknown(
    queue: Queue, driver: PostgresDriver, db: psycopg.Connection[tuple[Any, ...]]
) -> None:
    queue.push(GRANT, jobs(1)[0])
    first = claim()
    done = tuple(Key(row.id, first.token) for row in driver.reserve(first).rows)
    queue.later(GRANT, 0.01, jobs(1)[0])
    assert driver.wait(["default"], 5)
    db.execute("create function refuse() returns trigger language plpgsql as $$ begin raise query_canceled; end $$")
    db.execute(
        "create trigger refuse before update on hesape_jobs for each row when (new.state = 2) execute function refuse()"
    )
    both = claim(done=done)
    with pytest.raises(OutcomeUnknownError):
        driver.reserve(both)
    db.execute("drop function refuse cascade")
    again = driver.reserve(both._replace(repeat=True))
    assert (len(again.rows), again.lost) == (1, [])


def test_jobs_that_are_retried_together_come_back_in_the_order_given(queue: Queue, driver: PostgresDriver) -> None:
    ids = [job.id for job in queue.bulk(GRANT, jobs(40))]
    for popped in queue.pop(n=40):
        popped.fail("bad")
    random.Random(7).shuffle(ids)
    driver.retry("acme", ids)
    assert [job.id for job in queue.pop(n=40)] == ids
