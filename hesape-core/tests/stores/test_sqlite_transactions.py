"""Joining a transaction that the caller lends (X1, S4)."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
import sqlalchemy.orm

from hesape.errors import AlreadyQueuedError, DuplicateJobError, StoreBusyError, TransactionRefusedError
from hesape.records import Unique


@pytest.fixture(params=["legacy", "explicit", "immediate"])
def lent(request: pytest.FixtureRequest, sqlite_bench: Any) -> Iterator[sqlite3.Connection]:
    """A connection in the several ways that one gets into a transaction, with a table of its own."""
    sqlite_bench.counts()
    connection = sqlite3.connect(sqlite_bench.driver.path, timeout=0.1)
    if request.param != "legacy":
        connection.isolation_level = None if request.param == "explicit" else "IMMEDIATE"
    connection.execute("CREATE TABLE mine (text TEXT)")
    connection.commit()
    if request.param == "explicit":
        connection.execute("BEGIN")
    yield connection
    connection.close()


def test_a_push_is_visible_exactly_when_the_caller_commits(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    lent.row_factory = sqlite3.Row
    lent.text_factory = bytes
    sqlite_bench.driver._store([sqlite_bench.row(), sqlite_bench.row()], lent)
    lent.execute("INSERT INTO mine VALUES ('x')")
    assert sqlite_bench.counts() == (0, 0, 0, 0)
    assert lent.in_transaction
    lent.commit()
    assert sqlite_bench.counts() == (2, 0, 0, 0)
    assert (lent.row_factory, lent.text_factory) == (sqlite3.Row, bytes)


def test_a_push_is_gone_after_a_rollback(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    sqlite_bench.driver._store([sqlite_bench.row(unique=Unique("unique:a", 10**9))], lent)
    lent.rollback()
    assert sqlite_bench.counts() == (0, 0, 0, 0)
    sqlite_bench.push(unique=Unique("unique:a", 10**9))


def test_a_push_is_gone_after_a_rolled_back_savepoint(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    kept, dropped = sqlite_bench.row(), sqlite_bench.row()
    sqlite_bench.driver._store([kept], lent)
    lent.execute("SAVEPOINT s")
    sqlite_bench.driver._store([dropped], lent)
    lent.execute("ROLLBACK TO s")
    lent.commit()
    assert sqlite_bench.ids() == [kept.id]


def test_a_refused_bulk_leaves_nothing_and_the_transaction_goes_on(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    taken = sqlite_bench.push()
    unique = Unique("unique:a", 10**9)
    lent.execute("INSERT INTO mine VALUES ('x')")
    with pytest.raises(DuplicateJobError) as caught:
        sqlite_bench.driver._store([sqlite_bench.row(), sqlite_bench.row(id=taken, payload=b"[1]")], lent)
    assert caught.value.index == 1
    with pytest.raises(AlreadyQueuedError):
        sqlite_bench.driver._store([sqlite_bench.row(unique=unique), sqlite_bench.row(unique=unique)], lent)
    lent.commit()
    assert sqlite_bench.ids() == [taken]
    assert lent.execute("SELECT text FROM mine").fetchall() == [("x",)]
    sqlite_bench.push(unique=unique)


def test_settlements_commit_with_the_caller_or_not_at_all(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    lent.rollback()
    sqlite_bench.store(*(sqlite_bench.row() for _ in range(3)))
    deleted, released, failed = sqlite_bench.take(3)

    def settle() -> None:
        if lent.isolation_level is None:
            lent.execute("BEGIN")
        driver = sqlite_bench.driver
        assert driver._delete([deleted], repeat=False, tx=lent) == []
        assert driver._release(released, delay_us=0, spent=True, error=None, exceptions=0, tx=lent)
        assert driver._fail(failed, error="e", exceptions=1, tx=lent)
        assert driver._delete([deleted], repeat=False, tx=lent) == [deleted]

    settle()
    lent.rollback()
    assert sqlite_bench.counts() == (0, 0, 3, 0)
    settle()
    lent.commit()
    assert sqlite_bench.counts() == (1, 0, 0, 1)


def test_a_cursor_stands_for_its_connection(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    sqlite_bench.driver._store([sqlite_bench.row()], lent.cursor())
    lent.commit()
    assert sqlite_bench.counts() == (1, 0, 0, 0)


def test_the_first_call_of_a_driver_may_be_one_with_a_lent_connection(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    sqlite_bench.driver.close()
    lent = sqlite3.connect(sqlite_bench.driver.path)
    sqlite_bench.driver._store([sqlite_bench.row()], lent)
    lent.commit()
    lent.close()
    assert sqlite_bench.counts() == (1, 0, 0, 0)


def test_a_lent_connection_waits_for_its_own_timeout_alone(sqlite_bench: Any, lent: sqlite3.Connection) -> None:
    holder = sqlite3.connect(sqlite_bench.driver.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError):
        sqlite_bench.driver._store([sqlite_bench.row()], lent)
    holder.close()


def refused(bench: Any, tx: object) -> str:
    with pytest.raises(TransactionRefusedError) as caught:
        bench.driver._store([bench.row()], tx)
    assert bench.counts() == (0, 0, 0, 0)
    return str(caught.value)


def test_autocommit_outside_a_transaction_is_refused(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    lent = sqlite3.connect(sqlite_bench.driver.path, isolation_level=None)
    assert "autocommit" in refused(sqlite_bench, lent)
    lent.execute("BEGIN")
    sqlite_bench.driver._store([sqlite_bench.row()], lent)
    lent.close()


class Modern(sqlite3.Connection):
    """As Python 3.12 shows a connection opened with `autocommit=True`."""

    autocommit = True


def test_the_autocommit_attribute_of_newer_pythons_is_respected(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    if sys.version_info >= (3, 12):
        lent = sqlite3.connect(sqlite_bench.driver.path, autocommit=True)
    else:
        lent = sqlite3.connect(sqlite_bench.driver.path, factory=Modern)
    assert "autocommit" in refused(sqlite_bench, lent)
    lent.close()


def test_another_database_is_refused_and_left_alone(sqlite_bench: Any, tmp_path: Path) -> None:
    sqlite_bench.counts()
    for name in (str(tmp_path / "other.db"), ":memory:"):
        lent = sqlite3.connect(name)
        assert "another database" in refused(sqlite_bench, lent)
        assert not lent.in_transaction
        lent.close()


def test_a_copy_that_took_the_files_place_is_refused(sqlite_bench: Any, tmp_path: Path) -> None:
    sqlite_bench.counts()
    lent = sqlite3.connect(sqlite_bench.driver.path)
    lent.execute("UPDATE hesape_meta SET value = 'another' WHERE key = 'store'")
    with pytest.raises(TransactionRefusedError, match="another store"):
        sqlite_bench.driver._store([sqlite_bench.row()], lent)
    lent.close()


def test_other_kinds_of_objects_are_refused_by_name(sqlite_bench: Any) -> None:
    assert "builtins.int" in refused(sqlite_bench, 7)
    engine = sqlalchemy.create_engine("sqlite://")
    assert "Engine" in refused(sqlite_bench, engine)
    engine.dispose()


def test_a_closed_connection_is_refused(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    lent = sqlite3.connect(sqlite_bench.driver.path)
    lent.close()
    assert "closed" in refused(sqlite_bench, lent)


@pytest.fixture
def engine(sqlite_bench: Any) -> Iterator[sqlalchemy.Engine]:
    sqlite_bench.counts()
    engine = sqlalchemy.create_engine(f"sqlite:///{sqlite_bench.driver.path}")
    yield engine
    engine.dispose()


def test_a_sqlalchemy_connection_is_joined(sqlite_bench: Any, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        sqlite_bench.driver._store([sqlite_bench.row()], connection)
        assert sqlite_bench.counts() == (0, 0, 0, 0)
    assert sqlite_bench.counts() == (1, 0, 0, 0)
    with engine.connect() as connection, connection.begin() as transaction:
        sqlite_bench.driver._store([sqlite_bench.row()], connection)
        transaction.rollback()
    assert sqlite_bench.counts() == (1, 0, 0, 0)


def test_a_sqlalchemy_session_is_joined(sqlite_bench: Any, engine: sqlalchemy.Engine) -> None:
    with sqlalchemy.orm.Session(engine) as session:
        sqlite_bench.driver._store([sqlite_bench.row()], session)
        session.commit()
        assert sqlite_bench.counts() == (1, 0, 0, 0)
        sqlite_bench.driver._store([sqlite_bench.row()], session)
        session.rollback()
    assert sqlite_bench.counts() == (1, 0, 0, 0)


def test_a_sqlalchemy_connection_outside_a_transaction_is_refused(sqlite_bench: Any, engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        assert "outside a transaction" in refused(sqlite_bench, connection)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection, connection.begin():
        assert "autocommit" in refused(sqlite_bench, connection)
