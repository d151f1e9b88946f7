"""A connection that the caller lends as `tx=`: what is underneath it, and whether it can be joined (X1).

Nothing here commits, rolls back, retries, prepares, or changes a setting of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from hesape.errors import StoreUnavailableError, TransactionRefusedError
from hesape.lending import below_django
from hesape_postgres import errors, records
from hesape_postgres.link import Link

_STORE = "select to_regclass(%(table)s) is not null"
_STORE_ID = "select store_id::text from {meta}"
_known: WeakKeyDictionary[psycopg.Connection[Any], dict[str, str]] = WeakKeyDictionary()
"""Which store a lent connection was found to have, by the name of its table: a connection stays in its database."""


class Lent:
    """A lent connection, checked. Statements run on a cursor of our own, whatever the caller's rows look like."""

    def __init__(self, link: Link, conn: psycopg.Connection[Any]) -> None:
        """Use `conn`, a connection inside a transaction or about to begin one."""
        self._link = link
        self._cursor = psycopg.Cursor(conn, row_factory=tuple_row)
        self.conn = conn

    def rows(self, statement: bytes, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement that answers with rows; it is never prepared, which would stay with the session."""
        with errors.translate_errors(self.conn, self._link.settings, StoreUnavailableError):
            return self._cursor.execute(statement, params, prepare=False, binary=True).fetchall()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """A block whose writes are undone when it raises, so that the caller's transaction stays usable."""
        self._command(b"savepoint hesape_push")
        try:
            yield
        except BaseException:
            if self.conn.info.transaction_status in {TransactionStatus.INTRANS, TransactionStatus.INERROR}:
                self._command(b"rollback to savepoint hesape_push; release savepoint hesape_push")
            raise
        self._command(b"release savepoint hesape_push")

    def _command(self, statement: bytes) -> None:
        with errors.translate_errors(self.conn, self._link.settings, StoreUnavailableError):
            self._cursor.execute(statement, prepare=False)


def borrow(link: Link, tx: object) -> Lent:
    """The psycopg connection of `tx`, checked; `TransactionRefusedError` says what is wrong with it."""
    conn = _unwrapped(tx)
    if conn.closed:
        _refuse("the connection lent as tx= is closed")
    status = conn.info.transaction_status
    if status == TransactionStatus.INERROR:
        _refuse("the transaction lent as tx= has failed: roll it back first")
    if status == TransactionStatus.ACTIVE:
        _refuse("the connection lent as tx= is busy with another statement or COPY")
    if status == TransactionStatus.IDLE and conn.autocommit:
        _refuse("the connection lent as tx= is in autocommit, outside a transaction: begin one first")
    store_id = link.find()
    lent = Lent(link, conn)
    found = _store_of(link, lent)
    if found != store_id:
        there = f"the {link.sql.text('{meta}')} there {'is of another store' if found else 'is missing'}"
        _refuse(f"the connection lent as tx= belongs to another database than {link.settings.name!r}: {there}")
    return lent


def _store_of(link: Link, lent: Lent) -> str:
    table = link.sql.text("{meta}")
    known = _known.setdefault(lent.conn, {})
    if table not in known:
        there = lent.rows(_STORE.encode(), {"table": table})[0][0]
        found = lent.rows(link.sql[_STORE_ID]) if there else []
        if not found:  # no table, or a snapshot from before there was one
            return ""
        known[table] = records.as_text(found[0][0])
    return known[table]


def _unwrapped(tx: object) -> psycopg.Connection[Any]:
    found = below_django(tx)
    if isinstance(found, psycopg.Cursor | psycopg.ServerCursor):
        found = found.connection
    elif _is_sqlalchemy(found):
        found = _below_sqlalchemy(found)
    if isinstance(found, psycopg.Connection):
        return found
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    if "async" in kind.lower():
        _refuse(f"tx= is a {kind}: asynchronous connections can't be lent, lend a psycopg.Connection")
    return _refuse(
        f"tx= is a {kind}: expected a psycopg 3 connection or cursor, SQLAlchemy's connection or session, "
        "or Django's connection over psycopg 3"
    )


def _is_sqlalchemy(tx: object) -> bool:
    return any(kind.__module__.startswith("sqlalchemy.") for kind in type(tx).__mro__)


def _below_sqlalchemy(tx: Any) -> object:
    """What psycopg calls a connection, below a session or a connection of SQLAlchemy, which isn't imported here."""
    kinds = {kind.__name__ for kind in type(tx).__mro__}
    if kinds & {"AsyncSession", "AsyncConnection", "async_scoped_session", "Engine"}:
        return tx
    if kinds & {"Session", "scoped_session"}:
        tx = tx.connection()  # begins the session's transaction, as every statement on it does
        kinds = {kind.__name__ for kind in type(tx).__mro__}
    if "Connection" not in kinds:
        return tx
    if not tx.in_transaction():  # SQLAlchemy must know of the transaction, or its commit would do nothing
        _refuse("tx= is a SQLAlchemy connection outside a transaction; use engine.begin(), or call its begin() first")
    return tx.connection.driver_connection


def _refuse(message: str) -> NoReturn:
    raise TransactionRefusedError(message)
