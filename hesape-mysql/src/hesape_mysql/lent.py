"""Connections that the caller lends as `tx=`: what they may be, and how statements run on them (X1, S4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import SERVER_STATUS
from pymysql.cursors import Cursor

from hesape.errors import TransactionRefusedError
from hesape.lending import below_django
from hesape_mysql.errors import CLIENT_ERRORS, NO_DATABASE, NO_TABLE, code_of, translate_errors
from hesape_mysql.pool import Answer
from hesape_mysql.statements import STORE_ID, Statements

_TAKES = "a PyMySQL connection or cursor, or an SQLAlchemy Connection or Session or Django's connection over PyMySQL"


class LentSession:
    """A lent connection. One statement at a time, on a cursor of our own; nothing of the session is touched."""

    def __init__(self, connection: pymysql.Connection[Any], packet: int) -> None:
        """Use a connection that `unwrapped` accepted."""
        self.packet = packet
        self._cursor = Cursor(connection)  # not connection.cursor(): its class may be one with rows of another shape

    def ask(self, sql: str, *, commits: bool = False) -> list[Answer]:
        """Send one statement; nothing commits here."""
        cursor = self._cursor
        cursor.execute(sql)
        return [Answer(cursor.fetchall() if cursor.description else (), cursor.rowcount)]


@contextmanager
def borrowed(tx: object, statements: Statements, store_id: bytes, packet: int) -> Iterator[LentSession]:
    """A session on a lent connection, once it is known to be in a transaction on this very store."""
    session = LentSession(unwrapped(tx), packet)
    with translate_errors():
        _check_store(session, statements, store_id)
        yield session


def unwrapped(tx: object) -> pymysql.Connection[Any]:
    """The PyMySQL connection behind what was lent, in a transaction; others are refused by name."""
    found = below_django(tx)
    if any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(tx).__mro__):
        found = _of_sqlalchemy(tx)
    elif isinstance(tx, Cursor):
        found = tx.connection
    if not isinstance(found, pymysql.Connection):
        message = f"tx= is a {_name(found)}: expected {_TAKES}"
        raise TransactionRefusedError(message)
    if not found.open:
        message = f"tx= is a {_name(tx)} that is closed; lend one that is open and in a transaction"
        raise TransactionRefusedError(message)
    status: int = found.server_status  # type: ignore[attr-defined]
    if status & SERVER_STATUS.SERVER_STATUS_AUTOCOMMIT and not status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
        message = f"tx= is a {_name(tx)} in autocommit, outside a transaction; begin one first"
        raise TransactionRefusedError(message)
    return found


def _name(tx: object) -> str:
    return f"{type(tx).__module__}.{type(tx).__qualname__}"


def _of_sqlalchemy(tx: Any) -> Any:
    """The driver's connection of an SQLAlchemy object, found by what it offers: the library isn't imported here."""
    if ".asyncio" in type(tx).__module__:
        message = f"tx= is a {_name(tx)}: asynchronous connections can't be lent yet; expected {_TAKES}"
        raise TransactionRefusedError(message)
    try:
        if hasattr(tx, "get_bind") and hasattr(tx, "connection"):  # a Session begins its own transaction with this
            tx = tx.connection()
        begun, found = tx.in_transaction(), tx.connection.dbapi_connection
    except Exception as error:
        message = f"tx= is a {_name(tx)} that gives no connection: {type(error).__name__}; expected {_TAKES}"
        raise TransactionRefusedError(message) from error
    if not begun:
        # Its commit() would do nothing, and its close() roll us back.
        message = f"tx= is a {_name(tx)} outside a transaction; call its begin() first"
        raise TransactionRefusedError(message)
    return found


def _check_store(session: LentSession, statements: Statements, store_id: bytes) -> None:
    elsewhere = f"the lent connection belongs to another database: its tables {statements.prefix}* aren't this store's"
    try:
        rows = session.ask(statements[STORE_ID])[0].rows
    except CLIENT_ERRORS as error:
        if code_of(error) == NO_TABLE or code_of(error) in NO_DATABASE:
            raise TransactionRefusedError(elsewhere) from error
        raise
    value = rows[0][0] if rows else b""
    if (value.encode() if isinstance(value, str) else bytes(value)) != store_id:
        raise TransactionRefusedError(elsewhere)
