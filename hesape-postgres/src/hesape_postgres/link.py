"""What every group of calls stands on: statements on our own connections, the schema, errors in hesape's words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg

from hesape.config import ConnectionSettings
from hesape.errors import OutcomeUnknownError, SchemaError, StoreError, StoreUnavailableError
from hesape.records import Finding
from hesape_postgres import connections, errors, schema
from hesape_postgres.connections import Own, OwnConnection, Pool
from hesape_postgres.records import Text
from hesape_postgres.settings import Settings
from hesape_postgres.statements import Bound

_CHECKUP: Final = b"select pg_backend_pid(), current_setting('fsync'), current_setting('synchronous_commit')"
Params = Mapping[str, Any]


class Link:
    """One connection as configured: its settings, its pool, and what was found in its database."""

    def __init__(self, settings: ConnectionSettings, options: Settings) -> None:
        """Open nothing yet."""
        self.settings = settings
        self.options = options
        self.sql = Bound(options.schema, options.prefix)
        self.begin()

    def begin(self) -> None:
        """Start without any connection, also in a forked child, which must not touch its parent's."""
        self.pool = Pool(self.options, self.dial)
        self.text = Text("UTF8")
        self.store_id = ""
        self._finding = threading.Lock()

    def dial(self, name: str = "hesape") -> OwnConnection:
        """A new connection; `StoreUnavailableError` when there is none to be had."""
        try:
            return connections.connect(self.options, name=name)
        except psycopg.Error as error:
            raise errors.unavailable(error, self.settings) from errors.cause(error)

    @contextmanager
    def own(self, lost: type[StoreError] = OutcomeUnknownError, *, found: bool = True) -> Iterator[Own]:
        """A connection of the pool; `lost` is what it means when it breaks. `found`: see to the schema."""
        if found:
            self.find()
        own = self.pool.take()
        own.lost = lost
        try:
            yield own
        except psycopg.Error as error:
            translated = errors.translated(error, own.conn, self.settings, own.lost)
            if isinstance(translated, SchemaError):
                self.store_id = ""  # somebody removed the tables: look again next time
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                own.conn.close()  # after a failover it may be a standby's: the next one finds the new primary
            raise translated from errors.cause(error)
        finally:
            self.pool.give(own)

    @contextmanager
    def transaction(self) -> Iterator[Own]:
        """A transaction of our own, READ COMMITTED whatever the default. What breaks before its end wrote nothing."""
        with self.own(StoreUnavailableError) as own, own.conn.transaction():
            yield own
            own.lost = OutcomeUnknownError

    def rows(self, statement: str, params: Params | None = None) -> list[tuple[Any, ...]]:
        """Run one statement that writes; its rows."""
        with self.own() as own:
            return own.rows(self.sql[statement], params)

    def count(self, statement: str, params: Params | None = None) -> int:
        """Run one statement that writes; how many rows it touched."""
        with self.own() as own:
            return own.count(self.sql[statement], params)

    def look(self, statement: str, params: Params | None = None) -> list[tuple[Any, ...]]:
        """Run one statement that only reads: a broken connection loses nothing."""
        with self.own(StoreUnavailableError) as own:
            return own.rows(self.sql[statement], params)

    def unhurried(self, run: Callable[[Own], int]) -> int:
        """Run what may take long, an operator's removal, without the limit for a statement."""
        with self.transaction() as own:
            own.conn.execute("select set_config('statement_timeout', '0', true)", prepare=False)
            patience, own.conn.patience_s = own.conn.patience_s, None
            try:
                return run(own)
            finally:
                own.conn.patience_s = patience

    def migrate(self) -> list[int]:
        """Apply what is missing; the numbers."""
        with self.own(found=False) as own:
            patience, own.conn.patience_s = own.conn.patience_s, None
            try:
                return schema.migrate(own.conn, self.sql)
            finally:
                own.conn.patience_s = patience

    def version(self) -> int:
        """The version of the tables, 0 without any."""
        with self.own(StoreUnavailableError, found=False) as own:
            return schema.read(own.conn, self.sql).version

    def product(self) -> str:
        """What answers, and its version."""
        with self.own(StoreUnavailableError, found=False) as own:
            version = own.rows(b"show server_version")[0][0]
        return f"PostgreSQL {version}"

    def checkup(self) -> list[Finding]:
        """What an operator should know: whether commits are durable, and whether a pooler stands between."""
        with self.own(StoreUnavailableError, found=False) as own:
            (pid, fsync, commit) = own.rows(_CHECKUP)[0]
            between = pid != own.conn.info.backend_pid  # a pooler answers with a session number of its own
        durable = fsync == "on" and commit != "off"
        found = [Finding(durable, f"fsync is {fsync}, synchronous_commit is {commit}")]
        if between and not self.options.pooler:
            found.append(
                Finding(fine=False, text="a pooler stands between: if it pools transactions, set pooler = true")
            )
        return found

    def find(self) -> str:
        """See to the schema once; the store's random id."""
        if not self.store_id:
            self._find()
        return self.store_id

    def _find(self) -> None:
        with self._finding:
            if self.store_id:
                return
            with self.own(StoreUnavailableError, found=False) as own:
                found = schema.read(own.conn, self.sql)
                self.text = Text(own.conn.info.parameter_status("server_encoding"))
            if found.version < schema.LATEST and self.options.migrate == "auto":
                self.migrate()
                with self.own(StoreUnavailableError, found=False) as own:
                    found = schema.read(own.conn, self.sql)
            schema.check(found, self.sql)
            self.store_id = found.store_id
