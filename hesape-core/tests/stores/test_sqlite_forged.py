"""Numbers and envelopes that somebody wrote into the database: no such row keeps others from running (G8, L6)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

import hesape
from hesape import Job, Queue, grant_for, system_grant

GRANT = system_grant("act", "acme")
ENDS = (2**63 - 1, -(2**63), 2**31 - 1, -1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def queue(file: Path) -> Iterator[Queue]:
    with hesape.connect(f"sqlite:///{file}") as queue:
        yield queue


def push(queue: Queue, **settings: object) -> Job:
    attributes = hesape.Attributes(**settings)  # type: ignore[arg-type]
    return queue.push(GRANT, Job.new(GRANT, "act", {}, attributes=attributes))


def forge(file: Path, job: Job, **columns: object) -> None:
    wanted = ", ".join(f"{column} = ?" for column in columns)
    with closing(sqlite3.connect(file)) as other, other:
        other.execute(
            f"UPDATE hesape_jobs SET {wanted} WHERE id = ?",
            (*columns.values(), bytes.fromhex(job.id.replace("-", ""))),
        )


@pytest.mark.parametrize("number", ENDS)
@pytest.mark.parametrize(
    "column", ["priority", "attempts", "lapses", "exceptions", "pushed_us", "retried_us", "due_us"]
)
def test_a_forged_number_stops_neither_its_neighbours_nor_itself(
    queue: Queue, file: Path, column: str, number: int
) -> None:
    forged = push(queue, retry_until=datetime(2999, 1, 1, tzinfo=UTC))
    forge(file, forged, **{column: number})
    neighbour = push(queue)
    popped = {job.id: job for job in queue.pop(n=2)}
    assert set(popped) == {forged.id, neighbour.id}
    for job in popped.values():
        assert job.retry_until is None or job.retry_until.tzinfo
        job.exceptions += 1
        job.release()
    for job in queue.pop(n=2):
        job.fail("over")
    assert len(queue.operator().failed()) == len(popped)


@pytest.mark.parametrize("number", ENDS)
def test_a_forged_number_of_a_failed_job_hides_no_other(queue: Queue, file: Path, number: int) -> None:
    forged, other = push(queue), push(queue)
    for job in queue.pop(n=2):
        job.fail("over")
    forge(file, forged, failed_us=number, pushed_us=number)
    assert {job.id for job in queue.operator().failed()} == {forged.id, other.id}


@pytest.mark.parametrize("action", ["", "\0", "a b", "x" * 129])
def test_a_record_whose_action_is_none_is_parked(queue: Queue, file: Path, action: str) -> None:
    job = push(queue)
    with closing(sqlite3.connect(file)) as other:
        ((envelope,),) = other.execute("SELECT envelope FROM hesape_jobs").fetchall()
    forge(file, job, envelope=envelope.replace(b'"act"', json.dumps(action).encode(), 1))
    neighbour = push(queue)
    popped = queue.pop(n=2)
    assert [one.id for one in popped] == [neighbour.id]
    assert grant_for(popped[0]).action == "act"
    assert queue.counts().failed == 1
