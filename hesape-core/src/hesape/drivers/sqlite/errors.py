"""The border to sqlite3: none of its exceptions gets past here."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hesape.errors import (
    HesapeError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)

_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED))
_REFUSED: Final = {
    sqlite3.SQLITE_FULL: "it is full, or its disk is",
    sqlite3.SQLITE_READONLY: "it is read-only for this process",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database",
    sqlite3.SQLITE_IOERR: "its disk failed",
    sqlite3.SQLITE_PERM: "this process has no permission for it",
    sqlite3.SQLITE_AUTH: "this process has no permission for it",
    sqlite3.SQLITE_TOOBIG: "a value is too large for it",
}
_UNAVAILABLE: Final = {
    sqlite3.SQLITE_CANTOPEN: "it can't be opened",
    sqlite3.SQLITE_NOMEM: "memory ran out",
    sqlite3.SQLITE_INTERRUPT: "the statement was interrupted",
    sqlite3.SQLITE_PROTOCOL: "too many processes opened it at once",
}


def code_of(error: sqlite3.Error) -> int:
    """SQLite's primary result code, 0 for an error of the module itself."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else's transaction is in the way."""
    return code_of(error) in _BUSY


def translated(error: sqlite3.Error | OSError, path: Path) -> HesapeError:
    """What an error of the client library means to the contract (E1, E3)."""
    if isinstance(error, OSError):
        return StoreRefusedError(f"the SQLite store {path}: {error}")
    code = code_of(error)
    if code in _BUSY:
        return StoreBusyError(f"the SQLite store {path} is busy: somebody else's transaction lasts too long ({error})")
    if code in _REFUSED:
        return StoreRefusedError(f"the SQLite store {path}: {_REFUSED[code]} ({error})")
    if code in _UNAVAILABLE:
        return StoreUnavailableError(f"the SQLite store {path}: {_UNAVAILABLE[code]} ({error})")
    if code == sqlite3.SQLITE_ERROR and "no such" in str(error):
        return SchemaError(f"the SQLite store {path} lacks a table or a column ({error}): run `hesape migrate`")
    return StoreError(f"the SQLite store {path}: {type(error).__name__}: {error}")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn what sqlite3 and the file system raise into the contract's errors."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise translated(error, path) from error
