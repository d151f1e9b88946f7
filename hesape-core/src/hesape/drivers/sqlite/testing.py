"""The sqlite driver's harness for the conformance suite."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, Literal
from weakref import WeakSet

from hesape.config import ConnectionSettings
from hesape.driver import Driver
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.records import STATES, to_blob, to_text
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape_conformance.harness import Harness, RawRow

_FIELDS: Final = "id, envelope, tenant, name, queue, state, priority, attempts, lapses, exceptions, last_error"
_NO_LIMIT: Final = 2**30
_TIMEOUT_S: Final = 2.0
"""How long the suite's drivers wait for a lock: an outage is shorter with it."""


class SqliteRaw:
    """A file, read and changed without the driver."""

    def __init__(self, path: Path) -> None:
        """Look into the file at `path`, which needn't be there yet."""
        self._path = path

    def rows(self) -> list[RawRow]:
        """Every stored job."""
        found = self._read(f"SELECT {_FIELDS} FROM hesape_jobs")
        return [
            RawRow(
                id=to_text(row[0]),
                envelope=row[1],
                tenant=row[2],
                name=row[3],
                queue=row[4],
                state=STATES[row[5]],
                priority=row[6],
                attempts=row[7],
                lapses=row[8],
                exceptions=row[9],
                last_error=row[10],
            )
            for row in found
        ]

    def overwrite(
        self, job_id: str, field: Literal["envelope", "tenant", "name", "queue", "attempts"], value: object
    ) -> None:
        """Set one column of a job."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            connection.execute(f"UPDATE hesape_jobs SET {field} = ? WHERE id = ?", (value, to_blob(job_id)))

    def entries(self) -> int:
        """How many locks, counters, flags, unique keys, workers and paused queues are kept."""
        tables = ("hesape_entries", "hesape_workers", "hesape_paused")
        counts = [self._read(f"SELECT count(*) FROM {table}") for table in tables]
        return sum(int(found[0][0]) for found in counts if found)

    def _read(self, sql: str) -> list[Any]:
        if not self._path.exists():
            return []
        with closing(sqlite3.connect(self._path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'hesape_jobs'").fetchone():
                return []
            return list(connection.execute(sql))


class SqliteLoan:
    """A connection as an application holds it, with its own writes in the table `scratch`."""

    def __init__(self, path: Path) -> None:
        """Connect, as yet outside a transaction."""
        self._path = path
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=_TIMEOUT_S)
        self.connection.row_factory = sqlite3.Row
        self.connection.execute("CREATE TABLE IF NOT EXISTS scratch (text TEXT)")

    def begin(self) -> None:
        """Begin a transaction."""
        self.connection.execute("BEGIN")

    def commit(self) -> None:
        """Commit it."""
        self.connection.commit()

    def rollback(self) -> None:
        """Roll it back."""
        self.connection.rollback()

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self.connection.execute(f"SAVEPOINT {name}")

    def rollback_to(self, name: str) -> None:
        """Roll back to a savepoint."""
        self.connection.execute(f"ROLLBACK TO {name}")

    def write(self, text: str) -> None:
        """Write a row of the application's own."""
        self.connection.execute("INSERT INTO scratch (text) VALUES (?)", (text,))

    def written(self) -> list[str]:
        """Its committed rows."""
        with closing(sqlite3.connect(self._path)) as other:
            return [text for (text,) in other.execute("SELECT text FROM scratch ORDER BY rowid")]

    def session(self) -> Mapping[str, object]:
        """What the driver must leave as it is."""
        names = ("busy_timeout", "synchronous", "foreign_keys", "cache_size", "query_only", "locking_mode")
        settings = {name: self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names}
        return {
            **settings,
            "isolation_level": self.connection.isolation_level,
            "row_factory": self.connection.row_factory,
            "text_factory": self.connection.text_factory,
            "in_transaction": self.connection.in_transaction,
        }


class SqliteHarness(Harness):
    """A namespace is a file in a folder of the run's own, or in the folder of the file that `--url` names."""

    driver = "sqlite"

    def __init__(self, url: str = "") -> None:
        """Find the folder; `start` makes it."""
        super().__init__(url)
        self._own = not url
        self._folder = Path()
        self._opened: WeakSet[SqliteDriver] = WeakSet()

    def start(self) -> None:
        """Make the folder."""
        if self._own:
            self._folder = Path(tempfile.mkdtemp(prefix="hesape-sqlite-"))
        else:
            self._folder = SqliteSettings.read(
                ConnectionSettings(name="suite", driver="sqlite", url=self.url)
            ).path.parent

    def stop(self) -> None:
        """Remove it."""
        if self._own and self._folder.is_absolute():
            shutil.rmtree(self._folder, ignore_errors=True)

    def server(self) -> tuple[str, str]:
        """The library that Python was built with."""
        return "SQLite", sqlite3.sqlite_version

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """The namespace's file."""
        return ConnectionSettings(
            name="suite",
            driver=self.driver,
            url=f"sqlite:///{self._path(namespace)}",
            options={"timeout": _TIMEOUT_S},
            folder=self._folder,
        )

    def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
        """Open a driver, and remember it: how full a file may become is a setting of each connection."""
        opened = super().open(namespace, endpoint=endpoint)
        assert isinstance(opened, SqliteDriver)
        self._opened.add(opened)
        return opened

    def raw(self, namespace: str) -> SqliteRaw:
        """The file itself."""
        return SqliteRaw(self._path(namespace))

    def drop(self, namespace: str) -> None:
        """Remove the file and what lies beside it."""
        path = self._path(namespace)
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.rmtree(path.with_name(path.name + "-workers"), ignore_errors=True)

    @contextmanager
    def outage(self, namespace: str) -> Iterator[None]:
        """Somebody else holds the file's write lock."""
        holder = sqlite3.connect(self._path(namespace), isolation_level=None, check_same_thread=False)
        with closing(holder):
            holder.execute("BEGIN IMMEDIATE")
            yield
            holder.execute("ROLLBACK")

    @contextmanager
    def full(self, namespace: str) -> Iterator[None]:
        """No driver that the suite opened may let the file grow."""
        self._limit(namespace, 1)
        try:
            yield
        finally:
            self._limit(namespace, _NO_LIMIT)

    @contextmanager
    def lend(self, namespace: str) -> Iterator[SqliteLoan]:
        """An application's connection to the file."""
        with closing(self.open(namespace)) as driver:
            driver.ping()
        loan = SqliteLoan(self._path(namespace))
        with closing(loan.connection):
            yield loan

    @contextmanager
    def unsuitable(self, namespace: str) -> Iterator[Mapping[str, object]]:
        """Connections that can't be joined."""
        path = self._path(namespace)
        connections = {
            "autocommit": sqlite3.connect(path, isolation_level=None),
            "another database": sqlite3.connect(self._path(f"{namespace}_other")),
            "a database in memory": sqlite3.connect(":memory:"),
            "a closed connection": sqlite3.connect(path),
        }
        connections["a closed connection"].close()
        for name in ("another database", "a database in memory"):
            connections[name].execute("BEGIN")
        try:
            yield {**connections, "the name of the file": str(path)}
        finally:
            for connection in connections.values():
                connection.close()
            self.drop(f"{namespace}_other")

    def _path(self, namespace: str) -> Path:
        return self._folder / f"{namespace}.db"

    def _limit(self, namespace: str, pages: int) -> None:
        for opened in list(self._opened):
            if opened.path == self._path(namespace):
                opened._connections.write(lambda session: session.rows(f"PRAGMA max_page_count = {pages}"))  # noqa: SLF001


harness = SqliteHarness
