"""What psycopg's errors mean in hesape's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import errors as pg

from hesape.config import ConnectionSettings
from hesape.errors import (
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape.masking import scrub

_BUSY: Final = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.LockNotAvailable,
    pg.QueryCanceled,  # by our own statement_timeout: rolled back
)
_POOLER: Final = (pg.InvalidSqlStatementName, pg.DuplicatePreparedStatement)
_SCHEMA: Final = (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName)


def cause(error: psycopg.Error) -> psycopg.Error:
    """The error to raise from: without the parameters of a connection, which hold its password."""
    return error if error.pgconn is None else type(error)(*error.args).with_traceback(error.__traceback__)


def unavailable(error: psycopg.Error, settings: ConnectionSettings) -> StoreUnavailableError:
    """The error of a connection that couldn't be made: surely nothing was sent."""
    return StoreUnavailableError(f"connection {settings.name!r}: {_text(error, settings)}")


def translated(
    error: psycopg.Error,
    conn: psycopg.Connection,
    settings: ConnectionSettings,
    lost: type[StoreError] = OutcomeUnknownError,
) -> StoreError:
    """The error of a statement sent on `conn`; `lost` is what a broken connection means at that point."""
    where = f"connection {settings.name!r}: "
    text = where + _text(error, settings)
    if conn.closed:
        return lost(f"{text}; the connection broke")
    if isinstance(error, _BUSY):
        return StoreBusyError(text)
    if isinstance(error, _POOLER):
        return StoreRefusedError(f"{text}; a pooler stands between: set the option pooler = true")
    if isinstance(error, _SCHEMA):
        return SchemaError(f"{text}; run `hesape migrate`")
    # In answer to a statement everything else is a refusal that rolled it back: 25006 read-only, 53100 disk full, 53200
    # out of memory, 42501 not allowed, XX001 damaged, ...
    return StoreRefusedError(text)


@contextmanager
def translate_errors(
    conn: psycopg.Connection, settings: ConnectionSettings, lost: type[StoreError] = OutcomeUnknownError
) -> Iterator[None]:
    """Let no error of psycopg out of the block."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, conn, settings, lost) from cause(error)


def _text(error: psycopg.Error, settings: ConnectionSettings) -> str:
    words = " ".join(str(error).split())
    state = f" ({error.sqlstate})" if error.sqlstate else ""
    return scrub(words or type(error).__name__, settings) + state
