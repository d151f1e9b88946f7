"""One table, two programs: this package, and a session that speaks plain SQL as Que is described."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from hesape_postgres.que import QueJob

ARGS = [
    "[]",
    '[1, {"a": [1.50, 9007199254740993, 1e2]},  "\N{PILE OF POO}"]',
    f"[{2**200}]",
    '{"an": "object"}',
]


@pytest.mark.parametrize("args", ARGS)
def test_a_row_of_another_program_is_worked_here(client: Any, plain: Any, held: Any, args: str) -> None:
    row = plain.enqueue("Ruby::Class", args, queue="q", priority=0, run_at="2020-01-02 03:04:05.678901+00")
    with client.lock_job("q") as job:
        assert (job.queue, job.priority, job.id, job.type, job.error_count) == ("q", 0, row[3], "Ruby::Class", 0)
        assert job.args == args.encode()
        assert str(job.run_at) == "2020-01-02 03:04:05.678901+00:00"
        assert plain.lock("q") is None
        job.delete()
    assert plain.rows() == []
    assert held() == 0


@pytest.mark.parametrize("args", ARGS)
def test_a_job_from_here_is_worked_by_another_program(client: Any, plain: Any, args: str) -> None:
    stored = client.enqueue(QueJob("go_func", args.encode(), priority=0))
    row = plain.lock()
    assert row[:2] == ("", 0)
    assert row[3:] == (stored.id, "go_func", args, 0)
    assert client.lock_job() is None
    assert plain.destroy(row) == 1
    assert plain.unlock(row)
    assert client.lock_job() is None


def test_a_row_written_here_is_the_row_that_the_other_program_writes(client: Any, plain: Any) -> None:
    theirs = plain.enqueue("Same", "[1]", queue="q", priority=7, run_at="2020-01-01 00:00:00.000001+00")
    client.enqueue(QueJob("Same", [1], "q", 7, datetime(2020, 1, 1, 0, 0, 0, 1, UTC)))
    mine = plain.rows()[1]
    assert mine[:3] + mine[4:] == theirs[:3] + theirs[4:]
    assert mine[3] == theirs[3] + 1


def test_an_error_from_either_side_is_counted_on_by_the_other(client: Any, plain: Any, conn: Any) -> None:
    plain.enqueue("Any")
    row = plain.lock()
    plain.set_error(row, 4, "RuntimeError: it broke")
    plain.unlock(row)
    conn.execute("update que_jobs set run_at = now()")
    with client.lock_job() as job:
        assert (job.error_count, job.last_error) == (1, "RuntimeError: it broke")
        job.error("ValueError: here too")
    query = "select error_count, last_error, extract(epoch from run_at - now())::float from que_jobs"
    [(count, text, left_s)] = conn.execute(query).fetchall()
    assert (count, text) == (2, "ValueError: here too")
    assert 16 < left_s <= 19
    conn.execute("update que_jobs set run_at = now()")
    row = plain.lock()
    assert row[6] == 2
    assert plain.destroy(row) == 1


def test_a_job_deleted_by_somebody_else_while_it_runs_is_no_error(client: Any, plain: Any, conn: Any) -> None:
    plain.enqueue("Any")
    with client.lock_job() as job:
        conn.execute("delete from que_jobs")
        job.delete()
    plain.enqueue("Any")
    with client.lock_job() as job:
        conn.execute("delete from que_jobs")
        job.error("too late to matter")
    assert plain.rows() == []


def test_the_lock_of_either_side_frees_the_job_when_its_session_ends(
    client: Any, plain: Any, conn: Any, until: Any, held: Any
) -> None:
    plain.enqueue("Any")
    assert plain.lock() is not None
    assert client.lock_job() is None
    plain.conn.close()
    until(lambda: held() == 0)
    with client.lock_job() as job:
        assert job.type == "Any"
