from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

import hesape_postgres.que
from hesape.errors import SchemaError
from hesape_postgres.que import (
    QueClient,
    QueJob,
    job_stats,
    prepare_statements,
    prepare_statements_with_preparer,
    worker_states,
)

PREPARED = "select count(*) from pg_prepared_statements where statement like '%que_jobs%' or statement like '%unlock%'"
OLD = datetime(2001, 2, 3, 4, 5, 6, 7, UTC)


def test_the_numbers_are_per_queue_and_type_the_most_numerous_first(client: Any, conn: Any) -> None:
    client.enqueue(QueJob("Few", queue="q", run_at=OLD))
    for _ in range(3):
        client.enqueue(QueJob("Many", run_at=datetime.now(UTC) + timedelta(hours=1)))
    conn.execute("update que_jobs set error_count = job_id where job_class = 'Many' and job_id > 2")
    with client.lock_job("q"):
        many, few = client.job_stats()
    assert (many.queue, many.type, many.count, many.count_working) == ("", "Many", 3, 0)
    assert (many.count_errored, many.highest_error_count) == (2, 4)
    assert (few.queue, few.type, few.count, few.count_working) == ("q", "Few", 1, 1)
    assert (few.count_errored, few.highest_error_count, few.oldest_run_at) == (0, 0, OLD)


def test_an_empty_table_has_no_numbers(client: Any) -> None:
    assert client.job_stats() == []
    assert client.worker_states() == []


def test_other_programs_locks_are_no_running_jobs(client: Any, conn: Any, server: str) -> None:
    job = client.enqueue(QueJob("Any"))
    with psycopg.connect(server, autocommit=True) as elsewhere:  # the same key in another database
        elsewhere.execute("select pg_advisory_lock(%s)", (job.id,))
        conn.execute("select pg_advisory_lock(0, %s)", (job.id,))  # the same two halves as two integers
        conn.execute("select pg_advisory_lock_shared(%s)", (job.id,))  # no client locks a job this way
        conn.execute("create table other (n int); begin; lock table other in exclusive mode")
        assert job_stats(conn)[0].count_working == 0
        assert worker_states(conn) == []
        elsewhere.execute("select pg_advisory_unlock_all()")


@pytest.mark.parametrize("job_id", [1, 2**31, 2**32 - 1, 2**32, 2**40 + 5, 2**63 - 1, -1, -(2**40)])
def test_a_lock_of_any_id_is_found_again(client: Any, conn: Any, plain: Any, job_id: int) -> None:
    conn.execute("insert into que_jobs (job_id, job_class) values (%s, 'Any')", (job_id,))
    with client.lock_job():
        assert client.job_stats()[0].count_working == 1
        [state] = client.worker_states()
        assert state.job.id == job_id
    assert client.worker_states() == []
    row = plain.lock()
    [state] = client.worker_states()
    assert (state.job.id, state.backend_pid) == (job_id, plain.pid)
    assert plain.unlock(row)


def test_a_waiting_lock_attempt_counts_once(client: Any, conn: Any, plain: Any, url: str, until: Any) -> None:
    client.enqueue(QueJob("Any"))
    with client.lock_job() as job, contextlib.closing(psycopg.connect(url)) as waiting:
        waiting.pgconn.send_query(b"select pg_advisory_lock(%d)" % job.id)
        until(lambda: plain.conn.execute("select from pg_locks where not granted").rowcount)
        assert job_stats(conn)[0].count == 1
        assert [state.job.id for state in worker_states(conn)] == [job.id]


def test_a_worker_state_says_what_its_session_does(client: Any, conn: Any) -> None:
    client.enqueue(QueJob("Any", [1], "q", run_at=OLD))
    with client.lock_job("q") as job:
        with job.conn.transaction():
            job.conn.execute("select 'a query of the handler'")
            [state] = worker_states(conn)
            assert state.backend_pid == job.conn.info.backend_pid
        assert (state.job.id, state.job.args, state.job.run_at, state.job.conn) == (job.id, b"[1]", OLD, None)
        assert (state.state, state.waiting_on_lock) == ("idle in transaction", False)
        assert state.last_query == "select 'a query of the handler'"
        moments: list[Any] = [state.transaction_started_at, state.last_query_started_at, state.state_changed_at]
        assert moments == sorted(moments)
        [state] = worker_states(conn)
        assert (state.state, state.transaction_started_at) == ("idle", None)


def test_prepared_ahead_nothing_is_prepared_later(url: str, plain: Any) -> None:
    with ConnectionPool(url, min_size=1, max_size=1, configure=prepare_statements) as pool:
        pool.wait()
        with pool.connection() as conn:
            assert conn.execute(PREPARED).fetchone() == (7,)
        client: Any = QueClient(pool)
        for _ in range(2):
            client.enqueue(QueJob("Any", [1]))
            client.enqueue(QueJob("Any"))
        with client.lock_job() as job:
            job.delete()
        with client.lock_job() as job:
            job.error("it broke")
        with pool.connection() as conn:
            assert conn.execute(PREPARED).fetchone() == (7,)
    assert [row[6] for row in plain.rows()] == [0, 0, 1]


def test_preparing_leaves_a_connection_as_it_was_and_may_be_repeated(conn: Any, url: str, held: Any) -> None:
    notices: list[Any] = []
    with psycopg.connect(url) as fresh:
        fresh.add_notice_handler(notices.append)
        for _ in range(2):
            prepare_statements(fresh)
            assert fresh.info.transaction_status.name == "IDLE"
        fresh.execute("create table written ()")
        prepare_statements(fresh)
        assert fresh.info.transaction_status.name == "INTRANS"
        fresh.rollback()
    with conn.transaction(), conn.cursor() as cursor:
        prepare_statements_with_preparer(cursor)
    prepare_statements_with_preparer(conn)
    assert conn.execute(PREPARED).fetchone() == (7,)
    assert conn.execute("select from que_jobs").rowcount == 0
    assert held() == 0
    assert notices == []


def test_preparing_without_a_table_says_so(server: str) -> None:
    address = make_conninfo(server, options="-csearch_path=pg_catalog")
    with psycopg.connect(address) as conn, pytest.raises(SchemaError, match="que_jobs"):
        prepare_statements(conn)


def test_what_is_public_is_what_is_listed() -> None:
    assert hesape_postgres.que.__all__ == [
        "AgainError",
        "AlreadySettledError",
        "DetachedError",
        "JobStats",
        "MissingTypeError",
        "QueClient",
        "QueJob",
        "QueWorker",
        "QueWorkerPool",
        "WorkerState",
        "default_retry_delay",
        "job_stats",
        "migrate",
        "prepare_statements",
        "prepare_statements_with_preparer",
        "schema_version",
        "worker_states",
    ]
