"""The errors of a Que table, and the border at which psycopg's become hesape's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import psycopg

from hesape.errors import (
    HesapeError,
    InvalidError,
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreRefusedError,
    StoreUnavailableError,
)


class MissingTypeError(InvalidError):
    """A Que job needs a type: the name of a Ruby class or of a function in a worker's map."""

    code = "missing-type"


class AgainError(HesapeError):
    """Ten locks in a row were won on jobs that another worker had just finished; ask again."""

    code = "again"
    retryable = True


_BUSY: Final = frozenset(("40001", "40P01", "55P03"))
_SCHEMA: Final = frozenset(("42P01", "42703", "42804", "3F000"))
_UNAVAILABLE: Final = frozenset(("53300", "57014"))  # too many connections; a statement timeout rolled it back
_LOST: Final = ("08", "57P")


@contextlib.contextmanager
def translate_errors(doing: str, *, wrote: bool = False) -> Iterator[None]:
    """Turn psycopg's errors into hesape's, with the original as the cause.

    `wrote` says that the block commits something: if the connection breaks there, nobody knows whether it did.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translated(error, doing, wrote=wrote) from error


def _translated(error: psycopg.Error, doing: str, *, wrote: bool) -> HesapeError:
    state = error.sqlstate or ""
    found = f"{doing}: {error}"
    lost = state.startswith(_LOST) or (
        not state and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    )
    if state in _BUSY:
        return StoreBusyError(found)
    if state in _SCHEMA:
        return SchemaError(f"{found}; is this a database with a Que table of schema 3 on its search path?")
    if state in _UNAVAILABLE:
        return StoreUnavailableError(found)
    if lost and wrote:
        return OutcomeUnknownError(f"{found}; it may have been written or not")
    if lost:
        return StoreUnavailableError(found)
    return StoreRefusedError(found)
