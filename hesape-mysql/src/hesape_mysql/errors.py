"""What the client library and the server say, in the words of the contract (E1, E3, I2).

The one question that matters is whether something may have been written. A lost connection leaves it open only when
the packet that could commit was on its way; everything the server itself answers with is a refusal that wrote nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pymysql.constants import CR, ER
from pymysql.err import MySQLError

from hesape.errors import (
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)

DUPLICATE: Final = ER.DUP_ENTRY
NO_TABLE: Final = ER.NO_SUCH_TABLE
NO_DATABASE: Final = frozenset({ER.NO_DB_ERROR, ER.BAD_DB_ERROR})

_BUSY: Final = frozenset(
    {
        ER.LOCK_DEADLOCK,  # 1213, the whole transaction is gone
        ER.LOCK_WAIT_TIMEOUT,  # 1205, only the statement is: whoever sees it rolls back
        ER.LOCK_TABLE_FULL,  # 1206
        1020,  # record has changed since last read, under a snapshot
        1412,  # table definition has changed, between two steps of a migration
        3572,  # NOWAIT
        3058,  # deadlock of named locks
    }
)
_ENDED: Final = frozenset(
    {
        CR.CR_SERVER_LOST,  # 2013
        ER.SERVER_SHUTDOWN,  # 1053
        ER.NEW_ABORTING_CONNECTION,  # 1184
        ER.QUERY_INTERRUPTED,  # 1317
        1152,  # aborted connection
        1927,  # connection was killed (MariaDB)
        1969,  # statement timeout (MariaDB)
        3024,  # statement timeout (MySQL)
        4031,  # disconnected for inactivity (MySQL)
    }
)
"""The server or the network ended the call: it may have been executed if it was the one that commits."""
_NOT_SENT: Final = frozenset(
    {
        0,  # the client library's own: the socket is closed
        CR.CR_SERVER_GONE_ERROR,  # 2006, the request couldn't be sent whole
        CR.CR_CONN_HOST_ERROR,  # 2003
        CR.CR_CONNECTION_ERROR,  # 2002
        ER.CON_COUNT_ERROR,  # 1040, too many connections
        ER.TOO_MANY_USER_CONNECTIONS,  # 1203
        ER.HANDSHAKE_ERROR,  # 1043
        1047,  # a cluster's node that isn't ready
        1080,  # forcing close
        1129,  # host is blocked after too many errors
        1226,  # the user's hourly quota
        3168,  # server isn't available
    }
)
_SCHEMA: Final = frozenset({ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR})
_HINTS: Final = {
    ER.RECORD_FILE_FULL: "the store is full",
    ER.DISK_FULL: "the disk is full",
    ER.OPTION_PREVENTS_STATEMENT: "the server takes no writes (is it a read-only replica?)",
    1792: "the transaction is read-only",
    1836: "the server is running in read-only mode",
    1874: "InnoDB is in read-only mode",
    ER.NET_PACKET_TOO_LARGE: "max_allowed_packet is too small for this job",
    ER.ACCESS_DENIED_ERROR: "user or password are wrong",
    ER.DBACCESS_DENIED_ERROR: "the user may not use this database",
    ER.TABLEACCESS_DENIED_ERROR: "the user lacks a privilege on the tables",
    ER.BAD_DB_ERROR: "the database doesn't exist; create it, the driver doesn't",
}


def code_of(error: BaseException) -> int:
    """The number of a client library's error, -1 when it has none."""
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else -1


def translated(error: BaseException, *, committing: bool) -> StoreError:
    """The error of the contract; `committing` says that what was sent last could commit."""
    code = code_of(error)
    said = f"MySQL error {code}: {error.args[1]}" if code > 0 and len(error.args) > 1 else repr(error)
    if code in _BUSY:
        return StoreBusyError(f"another transaction was in the way, and this one was rolled back ({said})")
    if code in _NOT_SENT and isinstance(error, MySQLError):
        return StoreUnavailableError(f"the server can't be reached; nothing was written ({said})")
    if code in _SCHEMA:
        return SchemaError(f"a table is missing or too old; run `hesape migrate` ({said})")
    # A packet out of order, or an answer cut in the middle, is a connection that can't be trusted: as good as lost.
    if code in _ENDED or code < 0 or isinstance(error, OSError):
        if committing:
            return OutcomeUnknownError(
                f"the connection ended before the answer came; it may have been written ({said})"
            )
        return StoreUnavailableError(f"the connection ended before the commit; nothing was written ({said})")
    hint = _HINTS.get(code, "the server refused it")
    return StoreRefusedError(f"{hint}; nothing was written ({said})")


CLIENT_ERRORS: Final = (MySQLError, OSError, AssertionError, IndexError)
"""What PyMySQL raises; the last two are how it reports an answer that was cut short."""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Let no error of the client library out; nothing inside commits."""
    try:
        yield
    except CLIENT_ERRORS as error:
        raise translated(error, committing=False) from error
