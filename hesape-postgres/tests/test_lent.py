from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import orm

from hesape.errors import DuplicateJobError, StoreBusyError, TransactionRefusedError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_postgres.driver import PostgresDriver
from hesape_postgres.testing import PrivatePostgres

GRANT = system_grant("run", "acme")
Db = psycopg.Connection[tuple[Any, ...]]


def job(**options: Any) -> Job:
    return Job.new(GRANT, "n", {"x": 1}, **options)


@pytest.fixture
def engine(postgres: PrivatePostgres) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(postgres.url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


def test_a_connection_and_its_cursor_can_be_lent(queue: Queue, postgres: PrivatePostgres) -> None:
    with psycopg.connect(postgres.url, row_factory=dict_row) as conn:
        queue.push(GRANT, job(), tx=conn)
        with conn.cursor() as cursor:
            cursor.execute("select 7 as seven")
            queue.push(GRANT, job(), tx=cursor)
            assert cursor.fetchone() == {"seven": 7}  # the caller's own answer is still there
        queue.bulk(GRANT, [job() for _ in range(120)], tx=conn)
        assert queue.counts().size == 0
        conn.commit()
        assert queue.counts().size == 122
    with psycopg.connect(postgres.url, autocommit=True) as other, other.transaction():
        queue.push(GRANT, job(), tx=other)
    assert queue.counts().size == 123


def test_a_connection_of_sqlalchemy_commits_and_rolls_back(queue: Queue, engine: sqlalchemy.Engine) -> None:
    with engine.connect() as conn:
        with pytest.raises(TransactionRefusedError, match="outside a transaction"):
            queue.push(GRANT, job(), tx=conn)  # SQLAlchemy must know that something is to be committed
        conn.begin()
        queue.push(GRANT, job(), tx=conn)
        assert queue.counts().size == 0
        conn.commit()
        assert queue.counts().size == 1
        conn.begin()
        queue.push(GRANT, job(), tx=conn)
        conn.rollback()
    with engine.begin() as conn:
        queue.push(GRANT, job(), tx=conn)
    assert queue.counts().size == 2


def test_a_session_of_sqlalchemy_commits_and_rolls_back(queue: Queue, engine: sqlalchemy.Engine) -> None:
    with orm.Session(engine) as session:
        queue.push(GRANT, job(), tx=session)
        session.commit()
        queue.push(GRANT, job(), tx=session)
        session.rollback()
    scoped = orm.scoped_session(orm.sessionmaker(engine))
    queue.push(GRANT, job(), tx=scoped)
    scoped.commit()
    scoped.remove()
    with orm.Session(engine) as session, session.begin():
        queue.push(GRANT, job(), tx=session)
        with session.begin_nested() as nested:
            queue.push(GRANT, job(), tx=session)
            nested.rollback()
    assert queue.counts().size == 3


def test_what_cant_be_joined_is_refused_by_name(
    queue: Queue, postgres: PrivatePostgres, engine: sqlalchemy.Engine, database: Callable[..., str]
) -> None:
    queue.counts()

    async def asynchronous() -> psycopg.AsyncConnection[Any]:
        conn = await psycopg.AsyncConnection.connect(postgres.url)
        await conn.close()
        return conn

    def refused(tx: object, words: str) -> None:
        with pytest.raises(TransactionRefusedError, match=words):
            queue.push(GRANT, job(), tx=tx)

    with psycopg.connect(postgres.url, autocommit=True) as conn:
        refused(conn, "in autocommit, outside a transaction")
        refused(conn.cursor(), "in autocommit, outside a transaction")
    refused(conn, "is closed")
    refused(asyncio.run(asynchronous()), "psycopg.*AsyncConnection: asynchronous")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as sa:
        refused(sa, "outside a transaction")
        sa.begin()
        refused(sa, "in autocommit")
    refused(engine, "sqlalchemy.*Engine")
    lite = sqlalchemy.create_engine("sqlite://")
    with lite.begin() as sa:
        refused(sa, "sqlite3.Connection")
    lite.dispose()
    refused(object(), "builtins.object")
    for url in (database(), database()):
        with psycopg.connect(url) as conn:
            refused(conn, "belongs to another database")
            assert conn.execute("select 1").fetchone() == (1,)  # and the caller's transaction goes on
    with psycopg.connect(postgres.url) as conn, pytest.raises(psycopg.errors.DivisionByZero):
        conn.execute("select 1/0")
    assert queue.counts().size == 0


def test_another_store_of_the_same_name_is_refused(
    queue: Queue, opened: Callable[..., PostgresDriver], database: Callable[..., str]
) -> None:
    queue.counts()
    url = database()
    Queue(opened(url=url)).counts()
    with psycopg.connect(url) as conn, pytest.raises(TransactionRefusedError, match="is of another store"):
        queue.push(GRANT, job(), tx=conn)


def test_a_search_path_of_the_callers_doesnt_matter(queue: Queue, postgres: PrivatePostgres) -> None:
    with psycopg.connect(postgres.url, options="-c search_path=nowhere") as conn:
        queue.push(GRANT, job(), tx=conn)
    assert queue.counts().size == 1


def test_a_refused_bulk_leaves_the_callers_transaction_usable(queue: Queue, postgres: PrivatePostgres) -> None:
    stored = queue.push(GRANT, job())
    other = Job.new(GRANT, "n", {"x": 2}, id=stored.id)
    with psycopg.connect(postgres.url) as conn:
        queue.push(GRANT, job(), tx=conn)
        with pytest.raises(DuplicateJobError) as caught:
            queue.bulk(GRANT, [job(), other], tx=conn)
        assert caught.value.index == 1
        with pytest.raises(DuplicateJobError):
            queue.push(GRANT, other, tx=conn)
        queue.push(GRANT, stored, tx=conn)
    assert queue.counts().size == 2


def test_a_conflict_in_a_serializable_transaction_reaches_the_caller(queue: Queue, postgres: PrivatePostgres) -> None:
    pushed = job()
    queue.counts()
    with psycopg.connect(postgres.url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        conn.execute("select count(*) from pg_class").fetchall()
        queue.push(GRANT, pushed)
        with pytest.raises(StoreBusyError) as caught:
            queue.push(GRANT, pushed, tx=conn)
        assert isinstance(caught.value.__cause__, psycopg.errors.SerializationFailure)
        conn.rollback()
        assert conn.isolation_level == psycopg.IsolationLevel.SERIALIZABLE


def test_waiters_are_told_at_the_commit_and_not_of_a_rolled_back_savepoint(
    queue: Queue, driver: PostgresDriver, postgres: PrivatePostgres, db: Db
) -> None:
    db.execute(f'listen "hesape_{driver._link.find().replace("-", "")}"'.encode())
    with psycopg.connect(postgres.url) as conn:
        conn.execute("savepoint one")
        queue.push(GRANT, job(queue="rolled"), tx=conn)
        conn.execute("rollback to savepoint one")
        queue.push(GRANT, job(queue="kept"), tx=conn)
        assert [note.payload for note in db.notifies(timeout=0.2)] == []
    assert [note.payload for note in db.notifies(timeout=5, stop_after=1)] == ["kept"]
    assert [note.payload for note in db.notifies(timeout=0.2)] == []


def test_a_long_transactions_push_is_due_by_the_clock_of_the_statement(
    queue: Queue, driver: PostgresDriver, postgres: PrivatePostgres
) -> None:
    with psycopg.connect(postgres.url) as conn:
        conn.execute("select pg_sleep(0.5)")
        before = driver.now()
        queue.push(GRANT, job(), tx=conn)
    assert (queue.driver.oldest_pending("default") or 0) >= before
