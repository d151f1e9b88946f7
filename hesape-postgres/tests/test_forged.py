"""Numbers that somebody wrote into the database: no such row keeps others from running (G8, L6)."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from hesape.attributes import Attributes
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_postgres.driver import PostgresDriver

GRANT = system_grant("n", "acme")
Db = psycopg.Connection[tuple[Any, ...]]
BITS = {"priority": 16, "attempts": 32, "lapses": 32, "exceptions": 32}


def ends(column: str) -> tuple[int, ...]:
    bits = BITS.get(column, 64)
    return (2 ** (bits - 1) - 1, -(2 ** (bits - 1)), -1)


def forgeries(*columns: str) -> list[tuple[str, int]]:
    return [(column, number) for column in columns for number in ends(column)]


def forge(db: Db, job: Job, **columns: object) -> None:
    wanted = ", ".join(f"{column} = %({column})s" for column in columns)
    db.execute(f"update hesape_jobs set {wanted} where id = %(id)s".encode(), {**columns, "id": job.id})


@pytest.mark.parametrize("slow_claims", [0, 2], ids=["plain", "marked"])
@pytest.mark.parametrize(
    ("column", "number"),
    forgeries("priority", "attempts", "lapses", "exceptions", "pushed_us", "retried_us", "due_us"),
)
def test_a_forged_number_stops_neither_its_neighbours_nor_itself(
    queue: Queue, driver: PostgresDriver, db: Db, column: str, number: int, slow_claims: int
) -> None:
    forged, neighbour = (queue.push(GRANT, Job.new(GRANT, "n", attributes=Attributes())) for _ in range(2))
    forge(db, forged, **{column: number})
    for _ in range(slow_claims):
        driver._marks.clocked(["default"], 1.0, time.monotonic())
    for _ in range(2):
        popped = {job.id: job for job in queue.pop(n=2)}
        assert set(popped) == {forged.id, neighbour.id}
        for job in popped.values():
            job.release()
    for job in queue.pop(n=2):
        job.fail("over")
    assert len(queue.operator().failed()) == 2


@pytest.mark.parametrize("slow_claims", [0, 2], ids=["plain", "marked"])
@pytest.mark.parametrize(("column", "number"), [("due_us", -(2**63)), ("due_us", -1), ("reserved_us", -(2**63))])
def test_a_forged_time_is_long_ago(
    queue: Queue, driver: PostgresDriver, db: Db, column: str, number: int, slow_claims: int
) -> None:
    forged = queue.later(GRANT, 60, Job.new(GRANT, "n"))
    if column == "reserved_us":
        forge(db, forged, state=2, reserved_us=number)
    else:
        forge(db, forged, due_us=number)
    for _ in range(slow_claims):
        driver._marks.clocked(["default"], 1.0, time.monotonic())
    start = time.monotonic()
    assert driver.wait(["default"], 30)
    assert time.monotonic() - start < 10
    assert queue.counts().pending == 1
    assert queue.oldest_pending() is not None
    assert [job.id for job in queue.pop()] == [forged.id]


@pytest.mark.parametrize("number", ends("failed_us"))
def test_a_forged_number_of_a_failed_job_hides_no_other(queue: Queue, db: Db, number: int) -> None:
    forged, other = (queue.push(GRANT, Job.new(GRANT, "n")) for _ in range(2))
    for job in queue.pop(n=2):
        job.fail("over")
    forge(db, forged, failed_us=number, pushed_us=number)
    assert {job.id for job in queue.operator().failed()} == {forged.id, other.id}
    assert queue.operator().prune(3600) == (number < 0)
