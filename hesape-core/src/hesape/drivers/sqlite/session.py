"""One turn at a connection: statements by their text, under the configured names, and the time."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from hesape.drivers.sqlite.errors import is_busy

_FIRST_PAUSE_S: Final = 0.0003
_LONGEST_PAUSE_S: Final = 0.005

T = TypeVar("T")
Values = Sequence[Any] | Mapping[str, Any]


class Named(dict[str, str]):
    """Statements are written with the names `hesape_...`; this finds each under the configured prefix."""

    def __init__(self, prefix: str) -> None:
        """Begin with none."""
        super().__init__()
        self._prefix = prefix

    def __missing__(self, sql: str) -> str:
        """Rename once, and remember."""
        self[sql] = renamed = sql.replace("hesape_", self._prefix)
        return renamed


class Session:
    """A connection for as long as one call uses it.

    SQLite's own waiting for a lock sleeps up to a tenth of a second at a time, so that eight writers let one wait for a
    whole second; this one looks every few milliseconds.
    """

    __slots__ = ("_cursor", "_deadline", "_named", "now")

    def __init__(
        self, cursor: sqlite3.Cursor, named: Named, now: Callable[[], int], deadline: float | None = None
    ) -> None:
        """Use `cursor` until the monotonic time `deadline`; without one nothing waits here."""
        self._cursor = cursor
        self._named = named
        self._deadline = deadline
        self.now = now
        """The clock, in microseconds since the epoch. Ask it once the write lock is held: waiting takes time (T2)."""

    @property
    def count(self) -> int:
        """How many rows the last statement changed."""
        return self._cursor.rowcount

    def run(self, sql: str, values: Values = ()) -> int:
        """Execute one statement that returns no rows; how many rows it changed."""
        return self._cursor.execute(self._named[sql], values).rowcount

    def many(self, sql: str, rows: Iterable[Values]) -> int:
        """Execute one statement for each of `rows`; how many rows they changed."""
        return self._cursor.executemany(self._named[sql], rows).rowcount

    def rows(self, sql: str, values: Values = ()) -> list[Any]:
        """Execute one statement and fetch all that it returns.

        Outside a transaction even a read can find the file locked, when others open or close it for the first or last
        time; then it waits.
        """
        try:
            return self._fetch(sql, values)
        except sqlite3.OperationalError as error:
            if not is_busy(error) or self._cursor.connection.in_transaction:
                raise
        return self._waiting(lambda: self._fetch(sql, values))

    def begin(self) -> None:
        """Begin a transaction that may write: a read that turns into a write later would fail at once."""
        self._waiting(lambda: self.run("BEGIN IMMEDIATE"))

    def back(self, savepoint: str = "") -> None:
        """Roll back, if a transaction is open still (some errors end it), or to a savepoint, and forget it."""
        if self._cursor.connection.in_transaction:
            if savepoint:
                self.run(f"ROLLBACK TO {savepoint}")
                self.run(f"RELEASE {savepoint}")
            else:
                self.run("ROLLBACK")

    def alone(self, sql: str, values: Callable[[int], Values]) -> list[Any]:
        """Execute one statement that is a transaction by itself, with values that depend on the time."""
        return self._waiting(lambda: self._fetch(sql, values(self.now())))

    def _fetch(self, sql: str, values: Values) -> list[Any]:
        return self._cursor.execute(self._named[sql], values).fetchall()

    def _waiting(self, attempt: Callable[[], T]) -> T:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if self._deadline is None or not is_busy(error) or monotonic() + pause >= self._deadline:
                    raise
            sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 1.5, _LONGEST_PAUSE_S)
