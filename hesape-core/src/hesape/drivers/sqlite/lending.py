"""Connections that a caller lends: what they are, and whether they may be joined (X1)."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.connections import Connections
from hesape.drivers.sqlite.session import Session
from hesape.errors import TransactionRefusedError
from hesape.lending import below_django

_LEGACY: Final = -1
"""sqlite3.LEGACY_TRANSACTION_CONTROL, which came with Python 3.12."""
_KINDS: Final = "a sqlite3 Connection or Cursor, or a SQLAlchemy Connection or Session or Django's connection on one"


def join(connections: Connections, tx: object) -> Session:
    """A session on a lent connection, inside its transaction. `TransactionRefusedError` says why it can't be.

    Its timeouts and settings stay its own; nothing is committed, rolled back or repeated here.
    """
    lent = _unwrapped(tx)
    try:
        _check_transaction(lent)
        cursor = lent.cursor()
        cursor.row_factory = None
        _check_file(cursor, connections.settings.path)
        session = Session(cursor, connections.named, connections.now)
        session.run(sql.JOIN, {"store": connections.store_id})
    except sqlite3.IntegrityError as error:
        _refuse(f"it belongs to another store than {connections.settings.path}, whose file was replaced", error)
    except sqlite3.ProgrammingError as error:
        _refuse(f"it can't be used here: {error}", error)
    return session


def _refuse(problem: str, cause: Exception | None = None) -> NoReturn:
    message = f"the lent connection can't be joined: {problem}"
    raise TransactionRefusedError(message) from cause


def _check_transaction(lent: sqlite3.Connection) -> None:
    """A transaction is open, or the first statement that writes will open one."""
    if lent.in_transaction:
        return
    if getattr(lent, "autocommit", _LEGACY) is True or lent.isolation_level is None:
        _refuse("it is in autocommit outside a transaction; BEGIN first")


def _check_file(cursor: sqlite3.Cursor, path: Path) -> None:
    files = [row[2] for row in cursor.execute("PRAGMA database_list").fetchall() if row[1] in {"main", b"main"}]
    found = Path(os.fsdecode(files[0])) if files and files[0] else None
    if found is None or not found.exists() or not found.samefile(path):
        _refuse(f"it belongs to another database, {found or 'one in memory'}, and the jobs are in {path}")


def _unwrapped(tx: object) -> sqlite3.Connection:
    """The sqlite3 connection in what was lent, which a library that wasn't loaded can't have made."""
    tx = below_django(tx)
    if isinstance(tx, sqlite3.Connection):
        return tx
    if isinstance(tx, sqlite3.Cursor):
        return tx.connection
    engine, orm = sys.modules.get("sqlalchemy.engine"), sys.modules.get("sqlalchemy.orm")
    wrapped: Any = tx
    if orm is not None and isinstance(tx, orm.Session):
        wrapped = wrapped.connection()
    if engine is None or not isinstance(wrapped, engine.Connection):
        _refuse(f"it is a {type(tx).__module__}.{type(tx).__qualname__}; expected {_KINDS}")
    if not wrapped.in_transaction():
        _refuse("the SQLAlchemy connection is outside a transaction; use engine.begin(), or begin() first")
    found = wrapped.connection.driver_connection
    if not isinstance(found, sqlite3.Connection):
        _refuse(
            f"it is a SQLAlchemy connection of {type(found).__module__}.{type(found).__qualname__}; expected {_KINDS}"
        )
    return found
