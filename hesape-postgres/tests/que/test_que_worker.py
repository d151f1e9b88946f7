from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from hesape.errors import ArgumentInvalidError
from hesape_postgres.que import QueClient, QueJob, QueWorker, QueWorkerPool
from hesape_postgres.que.batch import PATIENCE_S, lock_batch


def fill(conn: psycopg.Connection[Any], count: int, job_class: str = "Any") -> None:
    conn.execute("insert into que_jobs (job_class) select %s from generate_series(1, %s)", (job_class, count))


def left(conn: psycopg.Connection[Any]) -> Any:
    return conn.execute("select count(*) from que_jobs").fetchall()[0][0]


def test_work_one_runs_the_function_of_the_type_and_deletes_the_job(
    client: Any, conn: Any, held: Any, idle: Any
) -> None:
    client.enqueue(QueJob("Any", ["an arg"]))
    seen: list[Any] = []
    worker = QueWorker(client, {"Any": lambda job: seen.append((job.type, job.args))})
    assert worker.work_one()
    assert not worker.work_one()
    assert seen == [("Any", b'["an arg"]')]
    assert (left(conn), held(), idle()) == (0, 0, True)


def test_an_exception_is_stored_with_its_text_and_traceback(client: Any, conn: Any, held: Any) -> None:
    def fail(_job: QueJob) -> None:
        message = "it broke"
        raise ValueError(message)

    client.enqueue(QueJob("Any"))
    assert QueWorker(client, {"Any": fail}).work_one()
    query = "select error_count, last_error, extract(epoch from run_at - now())::float from que_jobs"
    [(count, text, left_s)] = conn.execute(query).fetchall()
    assert count == 1
    assert text.startswith("ValueError: it broke\n\nTraceback")
    assert "in fail" in text
    assert 2 < left_s <= 4
    assert held() == 0


def test_an_unknown_type_is_an_error_with_back_off(client: Any, conn: Any) -> None:
    client.enqueue(QueJob("Stranger"))
    assert QueWorker(client, {}).work_one()
    [(count, text)] = conn.execute("select error_count, last_error from que_jobs where run_at > now()").fetchall()
    assert count == 1
    assert "unknown job type 'Stranger'" in text


def test_a_handler_may_settle_its_job_itself(client: Any, conn: Any) -> None:
    def handle(job: QueJob) -> None:
        if job.type == "Delete":
            job.delete()
        else:
            job.error("by hand")

    for name in ("Delete", "Error"):
        client.enqueue(QueJob(name))
    worker = QueWorker(client, {"Delete": handle, "Error": handle})
    while worker.work_one():
        pass
    assert conn.execute("select job_class, error_count, last_error from que_jobs").fetchall() == [
        ("Error", 1, "by hand")
    ]


def test_a_job_that_its_handler_ended_is_due_as_before(client: Any, conn: Any, held: Any) -> None:
    client.enqueue(QueJob("Any"))
    QueWorker(client, {"Any": lambda job: job.done()}).work_one()
    assert conn.execute("select error_count from que_jobs where run_at <= now()").fetchall() == [(0,)]
    assert held() == 0


def test_an_interrupt_in_a_handler_goes_through_and_frees_the_job(client: Any, held: Any, idle: Any) -> None:
    def interrupt(_job: QueJob) -> None:
        raise KeyboardInterrupt

    client.enqueue(QueJob("Any"))
    with pytest.raises(KeyboardInterrupt):
        QueWorker(client, {"Any": interrupt}).work_one()
    with pytest.raises(KeyboardInterrupt):
        QueWorker(client, {"Any": interrupt}).work()
    assert (left_held := held()) == 0, left_held
    assert idle()


def test_queue_and_interval_come_from_the_environment(client: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("QUE_QUEUE", raising=False)
    monkeypatch.delenv("QUE_WAKE_INTERVAL", raising=False)
    worker = QueWorker(client, {})
    assert (worker.queue, worker.interval) == ("", 5.0)
    monkeypatch.setenv("QUE_QUEUE", "mails")
    monkeypatch.setenv("QUE_WAKE_INTERVAL", "0.5")
    worker = QueWorker(client, {})
    assert (worker.queue, worker.interval) == ("mails", 0.5)
    worker = QueWorker(client, {}, queue="", interval=2)
    assert (worker.queue, worker.interval) == ("", 2.0)
    for wrong in ("soon", "-1", "0", "nan"):
        monkeypatch.setenv("QUE_WAKE_INTERVAL", wrong)
        with pytest.raises(ArgumentInvalidError, match="QUE_WAKE_INTERVAL"):
            QueWorkerPool(client, {})


def test_a_pool_has_at_least_one_worker(client: Any) -> None:
    for wrong in (0, -1, True, "2"):
        with pytest.raises(ArgumentInvalidError, match="workers"):
            QueWorkerPool(client, {}, wrong)  # type: ignore[arg-type]


def test_a_worker_takes_its_own_queue_alone(client: Any, conn: Any, until: Any) -> None:
    for queue in ("", "mails"):
        client.enqueue(QueJob("Any", queue=queue))
    with QueWorkerPool(client, {"Any": lambda _job: None}, queue="mails", interval=0.01):
        until(lambda: left(conn) == 1)
    assert conn.execute("select queue from que_jobs").fetchall() == [("",)]


def test_an_idle_worker_keeps_no_connection_and_wakes_by_itself(client: Any, conn: Any, until: Any, idle: Any) -> None:
    with QueWorkerPool(client, {"Any": lambda _job: None}, count=2, interval=0.02):
        until(idle)
        fill(conn, 3)
        until(lambda: left(conn) == 0)
        until(idle)


def test_shutdown_before_start_makes_work_return_at_once(client: Any, conn: Any) -> None:
    fill(conn, 1)
    worker = QueWorker(client, {})
    assert worker.shutdown()
    worker.work()
    workers = QueWorkerPool(client, {}, count=2)
    assert workers.shutdown()
    workers.start()
    assert workers.shutdown()
    assert conn.execute("select error_count from que_jobs").fetchall() == [(0,)]


def test_shutdown_while_busy_waits_for_the_running_job_and_starts_no_other(
    client: Any, conn: Any, held: Any, idle: Any, until: Any
) -> None:
    fill(conn, 200)
    entered, leave = threading.Event(), threading.Event()
    ran: list[int | None] = []

    def handle(job: QueJob) -> None:
        ran.append(job.id)
        if len(ran) == 20:
            entered.set()
            assert leave.wait(10)

    workers = QueWorkerPool(client, {"Any": handle}, interval=0.01)
    workers.start()
    assert entered.wait(10)
    assert not workers.shutdown(timeout=0.05)
    leave.set()
    assert workers.shutdown(timeout=10)
    assert len(ran) == 20
    assert left(conn) == 180
    assert (held(), idle()) == (0, True)


def test_a_handler_may_shut_its_own_worker_down(client: Any, conn: Any) -> None:
    fill(conn, 5)
    worker = QueWorker(client, {"Any": lambda _job: worker.shutdown()})
    worker.work()
    assert left(conn) == 4


def test_a_worker_outlives_a_server_that_drops_its_sessions(client: Any, conn: Any, until: Any) -> None:
    with QueWorkerPool(client, {"Any": lambda _job: None}, count=2, interval=0.02):
        for _ in range(5):
            fill(conn, 50)
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where pid <> pg_backend_pid() and datname = current_database()"
            )
        until(lambda: left(conn) == 0)


def test_a_batch_whose_session_is_gone_starts_no_further_job(
    pool: ConnectionPool[Any], conn: Any, until: Any, idle: Any, caplog: Any
) -> None:
    fill(conn, 5)
    batch: Any = lock_batch(pool, "", 5, lambda _count: 4.0)
    with batch.take() as job:
        conn.execute("select pg_terminate_backend(%s, 5000)", (batch.session.conn.info.backend_pid,))
        job.conclude()
    time.sleep(PATIENCE_S)
    assert batch.take() is None
    batch.close()
    until(idle)
    assert left(conn) == 5
    assert "will run again" in caplog.text


def test_every_deletion_is_made_by_the_session_that_holds_the_lock(client: Any, conn: Any, until: Any) -> None:
    conn.execute("""
        create function guard() returns trigger language plpgsql as $$
        begin
          if not exists (select from pg_locks where locktype = 'advisory' and objsubid = 1 and granted
                            and pid = pg_backend_pid() and objid::bigint = old.job_id) then
            raise 'job % is deleted without its lock', old.job_id;
          end if;
          return old;
        end $$;
        create trigger guards before delete on que_jobs for each row execute function guard()""")
    fill(conn, 300)

    def handle(job: QueJob) -> None:
        assert job.id is not None
        if job.id % 20 == 0:
            assert job.conn is not None
            with job.conn.transaction():
                job.delete()
        elif job.id % 30 == 1:
            job.delete()
        elif job.id % 70 == 2:
            time.sleep(PATIENCE_S * 3)

    with QueWorkerPool(client, {"Any": handle}, 3, interval=0.01):
        until(lambda: left(conn) == 0, within_s=30)


def test_a_worker_works_for_one_thread(client: Any, until: Any) -> None:
    worker = QueWorker(client, {}, interval=0.01)
    thread = threading.Thread(target=worker.work)
    thread.start()
    until(lambda: not worker.shutdown(timeout=0) or not thread.is_alive())
    thread.join()
    other = QueWorker(client, {}, interval=60)
    thread = threading.Thread(target=other.work)
    thread.start()
    until(lambda: other._thread is not None)
    with pytest.raises(ArgumentInvalidError, match="already"):
        other.work()
    assert other.shutdown()
    thread.join()


def test_a_long_handler_keeps_neither_finished_nor_waiting_jobs_from_others(
    client: Any, conn: Any, plain: Any, until: Any
) -> None:
    fill(conn, 100)
    entered, leave = threading.Event(), threading.Event()
    ran: list[int | None] = []

    def handle(job: QueJob) -> None:
        ran.append(job.id)
        if len(ran) == 40:  # the batch of 32 that began with job 32 is under way
            entered.set()
            assert leave.wait(20)

    with QueWorkerPool(client, {"Any": handle}, interval=0.01):
        assert entered.wait(10)
        until(lambda: left(conn) == 100 - 39)  # all but the running one are deleted
        until(lambda: plain.lock() is not None)
        assert plain.lock()[3] == 41  # the next in the batch; a session may lock its own job again
        leave.set()
        until(lambda: left(conn) == 1)
    assert len(ran) == len(set(ran)) == 99


def test_a_handler_that_takes_the_connection_has_it_for_itself(client: Any, conn: Any, plain: Any, until: Any) -> None:
    conn.execute("create table written (job_id bigint primary key)")
    fill(conn, 100)
    counted: list[int] = []

    def handle(job: QueJob) -> None:
        if job.id == 50:
            assert job.conn is not None
            with job.conn.transaction():
                job.conn.execute("insert into written values (%s)", (job.id,))
                counted.append(left(conn))
                counted.append(plain.lock()[3])

    with QueWorkerPool(client, {"Any": handle}, interval=0.01):
        until(lambda: left(conn) == 1)
    assert counted == [51, 51]
    assert conn.execute("select job_id from written").fetchall() == [(50,)]


def test_one_job_that_can_not_be_deleted_does_not_cost_the_others_theirs(
    pool: ConnectionPool[Any], conn: Any, until: Any
) -> None:
    fill(conn, 100)
    conn.execute("""
        create function keep() returns trigger language plpgsql as $$ begin raise 'kept'; end $$;
        create trigger keeps before delete on que_jobs for each row when (old.job_id = 40) execute function keep()""")
    with QueWorkerPool(QueClient(pool), {"Any": lambda _job: None}, interval=60):
        until(lambda: left(conn) == 1)
    assert conn.execute("select job_id from que_jobs").fetchall() == [(40,)]


def test_a_finished_job_is_deleted_soon_even_when_its_worker_is_never_idle(client: Any, conn: Any) -> None:
    fill(conn, 64)
    most = 0

    def handle(job: QueJob) -> None:
        nonlocal most
        time.sleep(PATIENCE_S / 4)
        assert job.id is not None
        most = max(most, left(conn) - (64 - job.id + 1))

    worker = QueWorker(client, {"Any": handle}, interval=60)
    thread = threading.Thread(target=worker.work)
    thread.start()
    thread.join(0)
    while left(conn):
        assert thread.is_alive()
        time.sleep(0.01)
    worker.shutdown()
    thread.join()
    assert most <= 8
