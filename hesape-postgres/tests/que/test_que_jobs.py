from __future__ import annotations

import contextlib
import copy
import pickle
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import psycopg
import pytest
from psycopg_pool import ConnectionPool

from hesape.errors import ArgumentInvalidError, OutcomeUnknownError
from hesape_postgres.que import AlreadySettledError, DetachedError, QueClient, QueJob


def locked(client: Any, queue: str = "") -> Any:
    job = client.lock_job(queue)
    assert job is not None
    return job


def end_session(conn: psycopg.Connection[Any], job: QueJob) -> None:
    assert job.conn is not None
    conn.execute("select pg_terminate_backend(%s, 5000)", (job.conn.info.backend_pid,))


def test_jobs_come_by_priority_then_time_then_id(client: Any, plain: Any) -> None:
    plain.enqueue("third", priority=5, run_at="2001-01-01 00:00:00.000002+00")
    plain.enqueue("first", priority=-1)
    plain.enqueue("second", priority=5, run_at="2001-01-01 00:00:00.000001+00")
    plain.enqueue("fourth", priority=5, run_at="2001-01-01 00:00:00.000002+00")
    plain.enqueue("later", priority=-2, run_at="3001-01-01")
    seen = []
    while (job := client.lock_job()) is not None:
        with job:
            seen.append(job.type)
            job.delete()
    assert seen == ["first", "second", "third", "fourth"]


def test_nothing_due_is_none_and_keeps_no_connection(client: Any, held: Any, idle: Any) -> None:
    client.enqueue(QueJob("Later", run_at=datetime.now(UTC) + timedelta(hours=1)))
    client.enqueue(QueJob("Elsewhere", queue="other"))
    assert client.lock_job() is None
    assert held() == 0
    assert idle()


def test_a_locked_job_is_passed_over_by_everybody_else(client: Any, held: Any) -> None:
    for name in ("one", "two"):
        client.enqueue(QueJob(name))
    with locked(client) as one, locked(client) as two:
        assert (one.type, two.type) == ("one", "two")
        assert one.conn is not two.conn
        assert client.lock_job() is None
        assert held() == 2
    assert held() == 0


def test_a_job_that_was_not_deleted_is_there_again(client: Any) -> None:
    client.enqueue(QueJob("Any"))
    with locked(client) as first:
        pass
    with locked(client) as second:
        assert second.id == first.id


def test_delete_acts_once_and_done_is_idempotent(client: Any, plain: Any, held: Any, idle: Any) -> None:
    client.enqueue(QueJob("Any"))
    job = locked(client)
    job.delete()
    job.delete()
    assert plain.rows() == []
    assert job.conn is not None
    assert held() == 1
    job.done()
    assert (job.conn, held(), idle()) == (None, 0, True)
    job.done()


@pytest.mark.parametrize(("errors", "delay_s"), list(enumerate([4, 19, 84, 259, 628])))
def test_an_error_is_counted_stored_and_delayed_by_the_fourth_power(
    client: Any, conn: psycopg.Connection[Any], errors: int, delay_s: int
) -> None:
    client.enqueue(QueJob("Any"))
    conn.execute("update que_jobs set error_count = %s", (errors,))
    with locked(client) as job:
        job.error("it broke")
        job.error("again")
    query = "select error_count, last_error, extract(epoch from run_at - now())::float from que_jobs"
    [(count, text, left_s)] = conn.execute(query).fetchall()
    assert (count, text) == (errors + 1, "it broke")
    assert delay_s - 3 < left_s <= delay_s
    assert client.lock_job() is None


@pytest.mark.parametrize("delay", [7.5, timedelta(seconds=7.5), lambda count: 6.5 + count])
def test_the_delay_can_be_chosen(pool: ConnectionPool[Any], conn: psycopg.Connection[Any], delay: Any) -> None:
    client = QueClient(pool, retry_delay=delay)
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        job.error("")
    [(left_s,)] = conn.execute("select extract(epoch from run_at - now())::float from que_jobs").fetchall()
    assert 5 < left_s <= 7.5


def test_a_delay_that_is_no_number_is_refused(pool: ConnectionPool[Any]) -> None:
    wrong: Any = "soon"
    with pytest.raises(ArgumentInvalidError, match="soon"):
        QueClient(pool, retry_delay=wrong)


def test_an_error_of_any_text_and_any_count_is_stored(client: Any, conn: psycopg.Connection[Any]) -> None:
    client.enqueue(QueJob("Any"))
    conn.execute("update que_jobs set error_count = 2147483647")
    with locked(client) as job:
        job.error("nul \0, surrogate \ud800, " + "long" * 100_000)
    [(count, text)] = conn.execute("select error_count, last_error from que_jobs").fetchall()
    assert count == 2147483647
    assert text.startswith("nul \\x00, surrogate \\ud800")
    assert len(text) <= 16 * 1024


def test_after_an_error_the_key_has_moved(client: Any) -> None:
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        job.error("it broke")
        with pytest.raises(AlreadySettledError):
            job.delete()


def test_a_deleted_job_takes_no_error(client: Any) -> None:
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        job.delete()
        with pytest.raises(AlreadySettledError):
            job.error("too late")


def test_the_last_error_is_there_when_the_job_comes_back(pool: ConnectionPool[Any]) -> None:
    client = QueClient(pool, retry_delay=0)
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        job.error("it broke")
    with locked(client) as job:
        assert (job.error_count, job.last_error) == (1, "it broke")


def test_what_was_never_locked_or_is_done_is_detached(client: Any) -> None:
    fresh = client.enqueue(QueJob("Any"))
    done = locked(client)
    done.done()
    for job in (QueJob("Any"), fresh, done):
        assert job.conn is None
        for call in (job.delete, lambda job=job: job.error("text"), job.conclude):
            with pytest.raises(DetachedError):
                call()
        job.done()


def test_a_copy_holds_neither_lock_nor_connection(client: Any, held: Any) -> None:
    client.enqueue(QueJob("Any", [1]))
    with locked(client) as job:
        for other in (copy.copy(job), copy.deepcopy(job), pickle.loads(pickle.dumps(job)), attrs.evolve(job)):  # noqa: S301
            assert (other.id, other.args, other.conn) == (job.id, b"[1]", None)
            with pytest.raises(DetachedError):
                other.delete()
            other.done()
        assert held() == 1


def test_a_key_with_an_instant_that_python_lacks_is_worked_too(client: Any, plain: Any) -> None:
    plain.enqueue("Any", run_at="-infinity")
    plain.enqueue("Any", run_at="4713-01-01 BC")
    for _ in range(2):
        with locked(client) as job:
            assert job.run_at == datetime.min.replace(tzinfo=UTC)
            job.delete()
    assert plain.rows() == []


def test_done_rolls_back_what_is_open(client: Any, conn: psycopg.Connection[Any], held: Any, idle: Any) -> None:
    conn.execute("create table written (n int)")
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        assert job.conn is not None
        job.conn.autocommit = False
        job.conn.execute("insert into written values (1)")
        job.delete()
    assert conn.execute("select from written").rowcount == 0
    assert conn.execute("select from que_jobs").rowcount == 1
    assert (held(), idle()) == (0, True)


def test_done_after_a_failed_transaction_frees_the_lock(client: Any, held: Any, idle: Any) -> None:
    client.enqueue(QueJob("Any"))
    with locked(client) as job:
        assert job.conn is not None
        job.conn.execute("begin")
        with pytest.raises(psycopg.errors.DivisionByZero):
            job.conn.execute("select 1 / 0")
    assert (held(), idle()) == (0, True)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda conn, _: conn.execute("select pg_advisory_unlock_all()"),
        lambda conn, left: left.enter_context(conn.transaction()),
        lambda conn, left: left.enter_context(conn.pipeline()),
        lambda conn, _: conn.close(),
        lambda conn, left: left.enter_context(conn.cursor().copy("copy que_jobs to stdout")),
    ],
    ids=["lock given away", "transaction left", "pipeline left", "closed", "copy left"],
)
def test_a_connection_whose_unlock_is_not_confirmed_is_closed_instead_of_pooled(
    client: Any, held: Any, idle: Any, until: Any, spoil: Any
) -> None:
    client.enqueue(QueJob("Any"))
    job = locked(client)
    conn = job.conn
    assert conn is not None
    left = contextlib.ExitStack()
    spoil(conn, left)
    job.done()
    assert conn.closed
    until(lambda: held() == 0 and idle())
    with locked(client) as again:
        assert again.id == job.id
    with contextlib.suppress(psycopg.Error):
        left.close()


def test_a_dropped_session_frees_the_job_and_done_stays_silent(
    client: Any, conn: psycopg.Connection[Any], held: Any, idle: Any, until: Any
) -> None:
    client.enqueue(QueJob("Any"))
    job = locked(client)
    end_session(conn, job)
    with pytest.raises(OutcomeUnknownError):
        job.delete()
    job.done()
    until(lambda: held() == 0 and idle())
    with locked(client) as again:
        assert again.id == job.id


def test_many_threads_may_end_a_job_at_once(client: Any, held: Any, idle: Any, caplog: Any) -> None:
    client.enqueue(QueJob("Any"))
    job = locked(client)
    barrier = threading.Barrier(8)

    def end() -> None:
        barrier.wait()
        job.done()

    threads = [threading.Thread(target=end) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (held(), idle()) == (0, True)
    assert caplog.records == []
