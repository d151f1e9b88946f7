from __future__ import annotations

import textwrap
from typing import Any

import psycopg
import pytest

from hesape.errors import OutcomeUnknownError
from hesape_postgres import que
from hesape_postgres.que import AlreadySettledError, QueJob, QueWorker


@pytest.fixture(autouse=True)
def ledger(conn: psycopg.Connection[Any], client: Any) -> None:
    conn.execute("create table ledger (job_id bigint primary key)")
    client.enqueue(QueJob("Pay"))


def counts(conn: psycopg.Connection[Any]) -> Any:
    """Rows of the ledger, rows of the queue."""
    return conn.execute("select (select count(*) from ledger), (select count(*) from que_jobs)").fetchall()[0]


def pay(job: QueJob) -> psycopg.Connection[Any]:
    """Write what the job is for, in the transaction that the caller began."""
    assert job.conn is not None
    job.conn.execute("insert into ledger values (%s)", (job.id,))
    return job.conn


def locked(client: Any) -> Any:
    job = client.lock_job()
    assert job is not None
    assert job.conn is not None
    return job


def test_the_handlers_writes_and_the_deletion_commit_together(client: Any, conn: psycopg.Connection[Any]) -> None:
    with locked(client) as job:
        with job.conn.transaction():
            pay(job)
            job.delete()
            assert counts(conn) == (0, 1)
        assert counts(conn) == (1, 0)


@pytest.mark.parametrize("pulled", ["after the writes", "after the deletion", "at the commit"])
def test_a_pulled_plug_leaves_neither_the_writes_nor_the_deletion(
    client: Any, conn: psycopg.Connection[Any], pulled: str, until: Any, held: Any
) -> None:
    job = locked(client)
    backend = pay_in_transaction(job)
    if pulled != "after the writes":
        job.delete()
    if pulled == "at the commit":  # the plug is pulled by what the commit itself runs
        backend.execute(
            "create function pull() returns trigger language plpgsql as"
            " $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5); return null; end $$;"
            "create constraint trigger pulls after insert on ledger deferrable initially deferred"
            " for each row execute function pull()"
        )
        backend.execute("insert into ledger values (-1)")
        with pytest.raises(psycopg.OperationalError):
            backend.commit()
    else:
        conn.execute("select pg_terminate_backend(%s, 5000)", (backend.info.backend_pid,))
        with pytest.raises(OutcomeUnknownError):
            job.delete()
    job.done()
    assert counts(conn) == (0, 1)
    until(lambda: held() == 0)
    with locked(client) as again, again.conn.transaction():
        pay(again)
        again.delete()
    assert counts(conn) == (1, 0)


def pay_in_transaction(job: QueJob) -> psycopg.Connection[Any]:
    assert job.conn is not None
    job.conn.execute("begin")
    return pay(job)


def test_a_plug_pulled_at_any_moment_leaves_both_or_neither(client: Any, conn: psycopg.Connection[Any]) -> None:
    for _ in range(20):
        client.enqueue(QueJob("Pay"))
    paid: list[int] = []

    def handle(job: QueJob) -> None:
        assert job.conn is not None
        with job.conn.transaction():
            pay(job)
            job.delete()
            if job.id is not None and job.id % 3 == 0 and job.id not in paid:
                paid.append(job.id)
                conn.execute("select pg_terminate_backend(%s, 5000)", (job.conn.info.backend_pid,))

    worker = QueWorker(client, {"Pay": handle}, interval=0.01)
    while counts(conn)[1]:
        worker.work_one()
        done, waiting = counts(conn)
        assert done + waiting == 21
    assert len(paid) == 7


def test_a_deletion_that_was_rolled_back_can_still_become_an_error(client: Any, conn: psycopg.Connection[Any]) -> None:
    with locked(client) as job:
        with job.conn.transaction():
            job.delete()
            raise psycopg.Rollback
        job.error("rolled back")
    assert conn.execute("select error_count, last_error from que_jobs").fetchall() == [(1, "rolled back")]


def test_a_deletion_that_was_rolled_back_can_be_repeated(client: Any, conn: psycopg.Connection[Any]) -> None:
    with locked(client) as job, job.conn.transaction():
        with job.conn.transaction():
            job.delete()
            raise psycopg.Rollback
        job.delete()
    assert counts(conn) == (0, 0)


def test_a_deletion_that_was_committed_takes_no_error(client: Any) -> None:
    with locked(client) as job:
        with job.conn.transaction():
            job.delete()
        with pytest.raises(AlreadySettledError):
            job.error("too late")


def test_an_error_that_was_committed_or_not_is_told_apart_by_a_later_deletion(
    client: Any, conn: psycopg.Connection[Any]
) -> None:
    with locked(client) as job:
        job.conn.execute("begin")
        job.error("first")
        job.conn.rollback()
        job.conn.execute("begin")
        job.error("second")
        job.conn.commit()
        with pytest.raises(AlreadySettledError):
            job.delete()
    assert conn.execute("select last_error from que_jobs").fetchall() == [("second",)]


def test_a_worker_commits_what_its_handler_left_open_with_the_deletion(
    client: Any, conn: psycopg.Connection[Any]
) -> None:
    assert QueWorker(client, {"Pay": pay_in_transaction}).work_one()
    assert counts(conn) == (1, 0)


def test_the_example_of_the_package_does_what_it_says(client: Any, conn: psycopg.Connection[Any]) -> None:
    lines = str(que.__doc__).splitlines()
    first = lines.index("    def pay(job):")
    names: dict[str, Any] = {}
    exec(textwrap.dedent("\n".join(lines[first : first + 4])), names)  # noqa: S102 - the documentation is the subject
    with que.QueWorkerPool(client, {"Pay": names["pay"]}, count=4) as workers:
        while counts(conn) != (1, 0):
            assert counts(conn) == (0, 1) or counts(conn) == (1, 0)
        assert workers.shutdown(timeout=10)


def test_a_worker_rolls_back_what_a_failing_handler_wrote(client: Any, conn: psycopg.Connection[Any]) -> None:
    def handle(job: QueJob) -> None:
        pay_in_transaction(job)
        job.delete()
        raise ZeroDivisionError

    assert QueWorker(client, {"Pay": handle}).work_one()
    assert counts(conn) == (0, 1)
    assert conn.execute("select error_count from que_jobs").fetchall() == [(1,)]


def test_a_handler_that_swallowed_a_failed_statement_did_not_succeed(
    client: Any, conn: psycopg.Connection[Any]
) -> None:
    def handle(job: QueJob) -> None:
        backend = pay_in_transaction(job)
        with pytest.raises(psycopg.errors.DivisionByZero):
            backend.execute("select 1 / 0")

    QueWorker(client, {"Pay": handle}).work_one()
    assert counts(conn) == (0, 1)
    [(text,)] = conn.execute("select last_error from que_jobs").fetchall()
    assert text.startswith("TransactionRefusedError")
