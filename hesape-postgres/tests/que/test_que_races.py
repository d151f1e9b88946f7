"""The race of the double check, made to happen.

A lock query's snapshot is taken before its lock attempt. A function of the same name as the server's, earlier on the
search path of one session, stands between the two: it waits at a gate that the test holds, and then calls the server's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from hesape_postgres.que import AgainError, QueClient, QueJob, QueWorker

GATE = """
create schema raced;
create sequence raced.tries;
create sequence raced.wins;
create function raced.pg_try_advisory_lock(key bigint) returns boolean language plpgsql as $$
declare
  won boolean;
begin
  perform nextval('raced.tries');
  perform pg_advisory_xact_lock_shared(1, 1);
  won := pg_catalog.pg_try_advisory_lock(key);
  if won then perform nextval('raced.wins'); end if;
  return won;
end $$;
"""
VANISHING = """
create schema raced;
create sequence raced.wins;
create function raced.pg_try_advisory_lock(key bigint) returns boolean language plpgsql as $$
begin
  delete from public.que_jobs where job_id = key;
  perform nextval('raced.wins');
  return pg_catalog.pg_try_advisory_lock(key);
end $$;
"""
AT_THE_GATE = "select from pg_locks where locktype = 'advisory' and objsubid = 2 and not granted"


@pytest.fixture
def raced(url: str) -> Iterator[ConnectionPool[Any]]:
    """Connections that find the function in the schema `raced` before the server's own."""
    address = make_conninfo(url, options="-csearch_path=raced,pg_catalog,public")
    with ConnectionPool(address, min_size=0, max_size=1) as opened:
        yield opened


def wins(conn: psycopg.Connection[Any]) -> Any:
    return conn.execute("select last_value from raced.wins").fetchall()[0][0]


def all_back(pool: ConnectionPool[Any]) -> bool:
    found = pool.get_stats()
    return found["pool_available"] == found["pool_size"] == 1


@pytest.mark.parametrize("batch", [False, True], ids=["lock_job", "worker"])
def test_a_lock_won_on_a_job_that_is_gone_is_given_back_and_the_job_not_run(
    raced: ConnectionPool[Any], conn: psycopg.Connection[Any], plain: Any, until: Any, held: Any, batch: Any
) -> None:
    conn.execute(GATE)
    plain.enqueue("First")
    mine = plain.lock()
    ran: list[QueJob] = []
    seen: list[QueJob | None] = []
    worker = QueWorker(QueClient(raced), {"First": ran.append}, interval=0.01)

    def race() -> None:
        if batch:
            worker.work()
        else:
            seen.append(QueClient(raced).lock_job())

    racer = threading.Thread(target=race)
    with conn.transaction():
        conn.execute("select pg_advisory_xact_lock(1, 1)")
        racer.start()
        until(lambda: plain.conn.execute(AT_THE_GATE).rowcount == 1)  # its snapshot holds the job
        assert plain.destroy(mine) == 1
        assert plain.unlock(mine)
    until(lambda: wins(conn) == 1 and held() == 0 and (batch or seen))
    worker.shutdown()
    racer.join()
    assert wins(conn) == 1
    assert (ran, seen) == ([], [] if batch else [None])
    assert held() == 0
    assert all_back(raced)


def test_a_job_that_moved_meanwhile_is_not_run_either(
    raced: ConnectionPool[Any], conn: psycopg.Connection[Any], plain: Any, until: Any, held: Any
) -> None:
    conn.execute(GATE)
    plain.enqueue("First")
    mine = plain.lock()
    seen: list[QueJob | None] = []
    racer = threading.Thread(target=lambda: seen.append(QueClient(raced).lock_job()))
    with conn.transaction():
        conn.execute("select pg_advisory_xact_lock(1, 1)")
        racer.start()
        until(lambda: plain.conn.execute(AT_THE_GATE).rowcount == 1)
        assert plain.set_error(mine, 4, "it broke") == 1
        assert plain.unlock(mine)
    racer.join()
    assert seen == [None]
    assert wins(conn) == 1
    assert held() == 0
    assert all_back(raced)


def test_ten_lost_races_are_reported_and_the_connection_is_back(
    raced: ConnectionPool[Any], conn: psycopg.Connection[Any], plain: Any, held: Any
) -> None:
    conn.execute(VANISHING)
    for _ in range(12):
        plain.enqueue("Gone")
    with pytest.raises(AgainError) as caught:
        QueClient(raced).lock_job()
    assert (caught.value.code, caught.value.retryable) == ("again", True)
    assert wins(conn) == 10
    assert len(plain.rows()) == 2
    assert held() == 0
    assert all_back(raced)


def test_nine_lost_races_and_a_job_give_the_job(
    raced: ConnectionPool[Any], conn: psycopg.Connection[Any], plain: Any
) -> None:
    conn.execute(VANISHING.replace("where job_id = key", "where job_id = key and job_class = 'Gone'"))
    for _ in range(9):
        plain.enqueue("Gone")
    plain.enqueue("Here")
    client: Any = QueClient(raced)
    with client.lock_job() as job:
        assert job.type == "Here"


@pytest.mark.parametrize("statement", ["lock", "check", "unlock"])
@pytest.mark.parametrize("lost", [False, True], ids=["error", "session lost"])
def test_a_failure_while_locking_leaks_neither_lock_nor_connection(
    raced: ConnectionPool[Any],
    conn: psycopg.Connection[Any],
    plain: Any,
    held: Any,
    until: Any,
    statement: str,
    lost: Any,
) -> None:
    """The table of this session is a view that fails after the lock was won, at the statement named."""
    what = "perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5);" if lost else "perform 1 / zero;"
    conn.execute(f"""
        create schema raced;
        create sequence raced.calls;
        create function raced.fail(here boolean) returns boolean language plpgsql as $$
        declare zero int := 0; begin if here then {what} end if; return true; end $$;
    """)
    if statement == "lock":  # one job is locked, the next one's lock attempt fails
        conn.execute("""
            create function raced.pg_try_advisory_lock(key bigint) returns boolean language sql as
            $$ select pg_catalog.pg_try_advisory_lock(key) and raced.fail(true) $$""")
    elif statement == "check":
        conn.execute("""
            create function raced.current_step() returns boolean language sql as
            $$ select raced.fail(exists (select from pg_locks
                where pid = pg_backend_pid() and locktype = 'advisory')) $$;
            create view raced.que_jobs as select * from public.que_jobs where raced.current_step()""")
    else:
        conn.execute("""
            create function raced.pg_try_advisory_lock(key bigint) returns boolean language plpgsql as
            $$ begin
                 delete from public.que_jobs where job_id = key;
                 return pg_catalog.pg_try_advisory_lock(key);
               end $$;
            create function raced.pg_advisory_unlock(key bigint) returns boolean language sql as
            $$ select raced.fail(true) $$""")
    plain.enqueue("Any")
    plain.enqueue("Any")
    client = QueClient(raced)
    if statement == "unlock":
        assert outcome(client) in {"None", "StoreUnavailableError"}
    else:
        assert outcome(client) == ("StoreUnavailableError" if lost else "StoreRefusedError")
    until(lambda: held() == 0 and raced.get_stats()["pool_available"] == raced.get_stats()["pool_size"])


def outcome(client: Any) -> str:
    try:
        return repr(client.lock_job())
    except Exception as error:  # noqa: BLE001 - its class is the answer
        return type(error).__name__
