"""The one session of a bridge: it holds the lock of every job that this process works.

Its locks are the deliveries. When it is lost, they are, and the server lets others have the jobs at once; nothing here
brings a lost one back, so what was delivered under it settles as lost (L4).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.rows import TupleRow, tuple_row

from hesape.config import ConnectionSettings
from hesape.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from hesape.records import Key, Row
from hesape_postgres import connections, errors
from hesape_postgres.que import parked, schema, statements
from hesape_postgres.que.bridge_records import Frame, bridged_row
from hesape_postgres.que.bridge_settings import BridgeSettings
from hesape_postgres.que.client import ATTEMPTS
from hesape_postgres.que.keys import Key as RowKey
from hesape_postgres.que.keys import key_arrays

_REMEMBERED: Final = 10_000
"""How many deliveries that are over are remembered, so that a repeated settlement is recognised."""


class Held(NamedTuple):
    """A job whose lock this session has."""

    key: RowKey
    token: bytes
    row: Row


class Over(NamedTuple):
    """A delivery that ended: settled as `kind`, or, with its session lost, known by the key of its row."""

    kind: str
    key: RowKey | None


class Locker:
    """Takes and gives back locks; one call at a time."""

    def __init__(self, settings: ConnectionSettings, options: BridgeSettings) -> None:
        """Open nothing yet."""
        self.frame = Frame("", options.shown, options.tenant, options.action)
        self._settings = settings
        self._options = options
        self._begin()

    def _begin(self) -> None:
        """Start without a session, also in a forked child: the locks are its parent's."""
        self._pid = os.getpid()
        self._mutex = threading.RLock()
        self._conn: connections.OwnConnection | None = None
        self._held: dict[str, Held] = {}
        self._over: OrderedDict[Key, Over] = OrderedDict()

    @contextmanager
    def session(self, lost: type[StoreError] = OutcomeUnknownError, *, ready: bool = True) -> Iterator[Session]:
        """The session for one call; `lost` is what it means when it breaks. With `ready` its tables are seen to."""
        if self._pid != os.getpid():
            self._begin()
        with self._mutex:
            conn = self._opened()
            try:
                if ready and not self.frame.database:
                    self._make_ready(conn)
                with errors.translate_errors(conn, self._settings, lost):
                    yield Session(conn)
            finally:
                if conn.closed:
                    self._lose()

    def _opened(self) -> connections.OwnConnection:
        if self._conn is None or self._conn.closed:
            self._lose()
            try:
                self._conn = connections.connect(self._options.postgres, name="hesape que bridge")
            except psycopg.Error as error:
                raise errors.unavailable(error, self._settings) from error
        return self._conn

    def _make_ready(self, conn: connections.OwnConnection) -> None:
        with errors.translate_errors(conn, self._settings, StoreUnavailableError):
            schema.check_schema(conn)
            if not Session(conn).rows(parked.EXISTS)[0][0]:
                conn.execute(parked.CREATE)
            self.frame = self.frame._replace(database=conn.info.dbname)

    def _lose(self) -> None:
        self._conn = None
        for job_id, held in self._held.items():
            self._remember(Key(job_id, held.token), Over("", held.key))
        self._held.clear()

    def _remember(self, key: Key, over: Over) -> None:
        self._over[key] = over
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)

    def close(self) -> None:
        """End the session, and with it every lock."""
        if self._pid == os.getpid():
            with self._mutex:
                if self._conn is not None:
                    self._conn.close()
                self._lose()

    # Deliveries.

    def claim(self, most: int, token: bytes, lease_us: int) -> list[Row]:
        """Lock and double-check up to `most` jobs that are due, or return what this token holds already (L4)."""
        with self.session(StoreUnavailableError) as session:
            again = [held.row for held in self._held.values() if held.token == token]
            if again:
                return again
            found: list[Row] = []
            try:
                for _ in range(ATTEMPTS):
                    rows = session.rows(
                        statements.LOCK_OTHERS,
                        {"queue": self._options.queue, "most": most, "held": self._job_ids()},
                    )
                    found = self._check(session, rows, token, lease_us) if rows else []
                    if found or not rows:
                        break
            except psycopg.Error:
                self._free_others(session)
                raise
            return found

    def _check(self, session: Session, rows: list[TupleRow], token: bytes, lease_us: int) -> list[Row]:
        keys = [RowKey.received(*row[:4]) for row in rows]
        still: dict[int, str | None] = dict(
            session.rows(statements.CHECK_MANY, (*key_arrays(keys), self._options.queue))
        )
        deadline_us = session.now_us() + lease_us
        found: list[Row] = []
        gone: list[int] = []
        for columns, key in zip(rows, keys, strict=True):
            if columns[3] in still:
                row = bridged_row(columns, still[columns[3]], self.frame, deadline_us)
                self._held[row.id] = Held(key, token, row)
                found.append(row)
            else:
                gone.append(key.job_id)
        session.unlock(gone)
        return found

    def current(self, key: Key) -> Held | None:
        """The job of a delivery that is current."""
        held = self._held.get(key.id)
        return held if held is not None and held.token == key.token else None

    def destroy(self, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
        """Delete the jobs of current deliveries, then give their locks back; the keys that weren't current."""
        with self.session() as session:
            mine = {key: held for key in keys if (held := self.current(key)) is not None}
            lost = [key for key in keys if key not in mine]
            if repeat:  # the session broke under an earlier send: an absent row was deleted by it
                lost = [key for key in lost if not self._gone(session, key)]
            if not mine:
                return lost
            row_keys = [held.key for held in mine.values()]
            parameters = (*key_arrays(row_keys), self._options.queue)
            deleted = {job_id for (job_id,) in session.rows(statements.DESTROY_MANY, parameters)}
            self._end(session, mine, "delete")
            return lost if repeat else lost + [key for key, held in mine.items() if held.key.job_id not in deleted]

    def settle(self, key: Key, kind: str, statement: str, parameters: Any) -> bool:
        """Run the statement that ends a delivery, then give its lock back; false when it wasn't current."""
        with self.session() as session:
            held = self.current(key)
            if held is None:
                over = self._over.get(key)
                return over is not None and (over.kind == kind or (not over.kind and self._gone(session, key)))
            changed = session.count(statement, parameters(held))
            self._end(session, {key: held}, kind)
            return changed == 1

    def hand_back(self, keys: Sequence[Key]) -> None:
        """Give locks back; the rows were never touched."""
        with self.session() as session:
            mine = {key: held for key in keys if (held := self.current(key)) is not None}
            self._end(session, mine, "")

    def _end(self, session: Session, ended: dict[Key, Held], kind: str) -> None:
        for key in ended:
            del self._held[key.id]
            if kind:
                self._remember(key, Over(kind, None))
        session.unlock([held.key.job_id for held in ended.values()])

    def _gone(self, session: Session, key: Key) -> bool:
        over = self._over.get(key)
        if over is None or over.key is None:
            return over is not None
        return not session.rows(statements.CHECK, over.key.parameters())

    def _job_ids(self) -> list[int]:
        return [held.key.job_id for held in self._held.values()]

    def _free_others(self, session: Session) -> None:
        """After a claim that failed half-way only what is held may stay locked."""
        if session.conn.closed:
            return
        try:
            session.rows(statements.UNLOCK_OTHERS, (self._job_ids(),))
        except psycopg.Error:
            session.conn.close()


class Session:
    """Statements on the locker's connection. Raises psycopg's errors, which `Locker.session` translates."""

    def __init__(self, conn: connections.OwnConnection) -> None:
        """Use this connection."""
        self.conn = conn

    def rows(self, statement: str, parameters: Any = None) -> list[TupleRow]:
        """Run a statement that answers with rows."""
        return self._execute(statement, parameters).fetchall()

    def count(self, statement: str, parameters: Any = None) -> int:
        """Run a statement; how many rows it touched."""
        return self._execute(statement, parameters).rowcount

    def now_us(self) -> int:
        """The server's clock."""
        found: int = self.rows(parked.NOW)[0][0]
        return found

    def unlock(self, job_ids: list[int]) -> None:
        """Give these locks back, each once; a session that can't is closed, for only that surely frees them."""
        if not job_ids:
            return
        try:
            self.rows(statements.UNLOCK_MANY, (job_ids,))
        except psycopg.Error:
            self.conn.close()

    def _execute(self, statement: str, parameters: Any) -> psycopg.Cursor[TupleRow]:
        return psycopg.Cursor(self.conn, row_factory=tuple_row).execute(statement, parameters, prepare=True)
