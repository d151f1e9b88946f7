from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pymysql
import pytest
import sqlalchemy
from pymysql.constants import CLIENT
from pymysql.cursors import DictCursor, SSCursor
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import hesape
from hesape.errors import (
    AlreadyQueuedError,
    DuplicateJobError,
    StoreBusyError,
    StoreUnavailableError,
    TransactionRefusedError,
)
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql.testing import MySQLHarness


def job(grant: Grant, **how: Any) -> hesape.Job:
    return hesape.Job.new(grant, "n", **how)


@pytest.fixture
def engine(harness: MySQLHarness) -> Any:
    return sqlalchemy.create_engine("mysql+pymysql://", creator=harness.connect, poolclass=sqlalchemy.NullPool)


def test_a_connection_or_its_cursor_of_any_class_can_be_lent(
    queue: Queue, grant: Grant, connect: Callable[..., Any]
) -> None:
    conn = connect(cursorclass=DictCursor)
    for lent in (conn, conn.cursor(), conn.cursor(SSCursor)):
        conn.begin()
        queue.push(grant, job(grant), tx=lent)
        assert queue.counts().size == 0
        conn.rollback()
        conn.begin()
        queue.push(grant, job(grant), tx=lent)
        conn.commit()
        [popped] = queue.pop()
        popped.delete()


def test_an_sqlalchemy_connection_or_session_can_be_lent(queue: Queue, grant: Grant, engine: Any) -> None:
    with engine.connect() as conn:
        with conn.begin():
            queue.push(grant, job(grant), tx=conn)
        assert queue.counts().size == 1
        with conn.begin() as transaction:
            queue.push(grant, job(grant), tx=conn)
            transaction.rollback()
        assert queue.counts().size == 1
    with Session(engine) as session:
        queue.push(grant, job(grant), tx=session)  # a session begins by itself
        assert queue.counts().size == 1
        session.commit()
    assert queue.counts().size == 2
    shared = scoped_session(sessionmaker(engine))
    queue.push(grant, job(grant), tx=shared)
    shared.commit()
    shared.remove()
    assert queue.counts().size == 3


def test_a_rolled_back_savepoint_takes_its_pushes_along(
    queue: Queue, grant: Grant, engine: Any, connect: Callable[..., Any]
) -> None:
    with Session(engine) as session, session.begin():
        kept = queue.push(grant, job(grant), tx=session)
        with session.begin_nested() as nested:
            queue.bulk(grant, [job(grant) for _ in range(1_100)], tx=session)
            nested.rollback()
    assert [popped.id for popped in queue.pop(n=5)] == [kept.id]


def test_a_handlers_writes_and_its_jobs_end_commit_together(
    queue: Queue, grant: Grant, connect: Callable[..., Any]
) -> None:
    conn = connect()
    for settle, left in (("delete", (0, 0)), ("release", (1, 0)), ("fail", (0, 1))):
        queue.push(grant, job(grant))
        for outcome in (conn.rollback, conn.commit):
            [popped] = queue.pop()
            conn.begin()
            getattr(popped, settle)(tx=conn)
            assert queue.counts().reserved == 1
            outcome()
            if outcome == conn.rollback:
                queue.driver.hand_back([popped])
        assert (queue.counts().pending, queue.counts().failed) == left
        queue.operator().clear("default")
        queue.operator().flush()


@pytest.mark.parametrize("isolation", ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_a_duplicate_is_recognised_under_every_isolation(
    queue: Queue, grant: Grant, connect: Callable[..., Any], isolation: str
) -> None:
    """An old snapshot doesn't show the row that was stored meanwhile: it is compared by a locking read."""
    queue.queues()
    conn = connect()
    with conn.cursor() as cursor:
        cursor.execute(f"set session transaction isolation level {isolation}")
        cursor.execute("start transaction with consistent snapshot")
    stored = queue.push(grant, job(grant, payload={"n": 1}))
    queue.push(grant, job(grant, payload={"n": 1}, id=stored.id), tx=conn)
    with pytest.raises(DuplicateJobError):
        queue.push(grant, job(grant, payload={"n": 2}, id=stored.id), tx=conn)
    fresh = queue.push(grant, job(grant, payload={"n": 3}), tx=conn)
    with pytest.raises(DuplicateJobError) as caught:
        queue.bulk(grant, [job(grant), job(grant, payload={"n": 2}, id=stored.id)], tx=conn)
    assert caught.value.index == 1
    conn.commit()
    assert {popped.id for popped in queue.pop(n=9)} == {stored.id, fresh.id}


def test_a_unique_key_is_held_with_its_job_or_not_at_all(
    queue: Queue, grant: Grant, connect: Callable[..., Any]
) -> None:
    alone = hesape.Attributes(unique_for=60, unique_key="k")
    conn = connect()
    conn.begin()
    queue.push(grant, job(grant, attributes=alone), tx=conn)
    conn.rollback()
    queue.push(grant, job(grant, attributes=alone))
    conn.begin()
    with pytest.raises(AlreadyQueuedError):
        queue.push(grant, job(grant, attributes=alone), tx=conn)
    queue.push(grant, job(grant), tx=conn)
    conn.commit()
    assert queue.counts().pending == 2


@pytest.mark.parametrize("charset", ["latin1", "utf8mb4", "gbk", "sjis"])
def test_neither_the_character_set_nor_a_lax_session_changes_a_job(
    queue: Queue, grant: Grant, connect: Callable[..., Any], charset: str
) -> None:
    conn = connect(charset=charset, sql_mode="ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT")
    with conn.cursor() as cursor:
        cursor.execute("set time_zone = '+05:30'")
    conn.begin()
    payload = {"text": '\'\\ "näh" \N{PILE OF POO} 表'}
    queue.push(grant, hesape.Job.new(grant, "näme \N{PILE OF POO}", payload), tx=conn)
    conn.commit()
    [popped] = queue.pop()
    assert (popped.name, popped.decode()) == ("näme \N{PILE OF POO}", payload)
    conn.begin()
    popped.fail("böse \N{PILE OF POO}", tx=conn)
    conn.commit()
    [failed] = queue.operator().failed()
    assert failed.last_error == "böse \N{PILE OF POO}"
    [row] = queue.driver.failed(None, queue=None, limit=1, before=None)
    assert abs(queue.driver.now() - (row.failed_us or 0)) < 5_000_000


def test_a_client_that_counts_found_rows_settles_alike(queue: Queue, grant: Grant, connect: Callable[..., Any]) -> None:
    queue.push(grant, job(grant))
    [popped] = queue.pop()
    conn = connect(client_flag=CLIENT.FOUND_ROWS)
    conn.begin()
    popped.release(tx=conn)
    conn.commit()
    assert queue.counts().pending == 1


def test_what_can_not_be_joined_is_refused_by_name(
    queue: Queue, grant: Grant, connect: Callable[..., Any], engine: Any, harness: MySQLHarness
) -> None:
    queue.queues()
    closed_cursor = connect().cursor()
    closed_cursor.close()
    nowhere = connect(database=None)
    nowhere.begin()
    with engine.connect() as outside, engine.connect().execution_options(isolation_level="AUTOCOMMIT") as lax:
        lax.execute(sqlalchemy.text("select 1"))
        for lent, why in (
            (connect(autocommit=True), "in autocommit, outside a transaction"),
            (lax, "in autocommit, outside a transaction"),
            (outside, "outside a transaction; call its begin"),
            (Session(), "gives no connection: UnboundExecutionError"),
            (closed_cursor, "expected a PyMySQL connection"),
            (nowhere, "another database"),
            (object(), "tx= is a builtins.object: expected a PyMySQL connection or cursor"),
            ("mysql://localhost", "tx= is a builtins.str"),
        ):
            with pytest.raises(TransactionRefusedError, match=why):
                queue.push(grant, job(grant), tx=lent)
    assert queue.counts().size == 0


def test_another_store_of_the_same_tables_is_told_by_its_id(
    queue: Queue, grant: Grant, connect: Callable[..., Any], namespace: str
) -> None:
    queue.queues()
    other = f"test_{namespace}"
    own = connect(autocommit=True)
    with own.cursor() as cursor:
        cursor.execute(f"create database {other}")
        try:
            cursor.execute(f"create table {other}.{namespace}_meta like {namespace}_meta")
            cursor.execute(f"insert into {other}.{namespace}_meta values ('store', 'somebody else')")
            conn = connect(database=other)
            conn.begin()
            with pytest.raises(TransactionRefusedError, match="another database"):
                queue.push(grant, job(grant), tx=conn)
            conn.rollback()
        finally:
            cursor.execute(f"drop database {other}")


def test_errors_of_a_lent_connection_come_out_translated_and_are_not_repeated(
    queue: Queue, grant: Grant, connect: Callable[..., Any], harness: MySQLHarness
) -> None:
    held = connect()
    held.begin()
    pushed = queue.push(grant, job(grant), tx=held)
    conn = connect()
    with conn.cursor() as cursor:
        cursor.execute("set session innodb_lock_wait_timeout = 1")
    conn.begin()
    with pytest.raises(StoreBusyError, match="1205"):
        queue.push(grant, job(grant, id=pushed.id), tx=conn)
    harness.cut_sessions()
    with pytest.raises(StoreUnavailableError):
        queue.push(grant, job(grant), tx=conn)
    assert queue.counts().size == 0


def test_lending_leaves_no_warning_and_no_open_result(queue: Queue, grant: Grant, connect: Callable[..., Any]) -> None:
    conn = connect()
    conn.begin()
    with conn.cursor() as cursor, warnings.catch_warnings():
        warnings.simplefilter("error")
        cursor.execute("select 1 union select 2")
        queue.push(grant, job(grant), tx=conn)
        assert cursor.fetchall() == ((1,), (2,))
    assert isinstance(conn, pymysql.Connection)
    conn.commit()
