"""Connections of our own: how one is made, and the pool of those that run statements.

The pool is small on purpose. It has no thread, hands out the connection that was used last, and looks at the socket of
an idle one before it is used: what the server closed meanwhile is replaced without anybody noticing, since nothing was
sent on it.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Generator, Mapping
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakSet

import psycopg
from psycopg.pq import TransactionStatus

from hesape.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from hesape_postgres.settings import Settings

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
Cursor = psycopg.Cursor[tuple[Any, ...]]

_PLANS: Final[Mapping[str, str]] = {
    # A plan for each call costs more than the statement, and one made while a table was empty reads all of it for ever
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
_SPARE_S: Final = 10.0
"""How much longer than the server's own limit an answer is awaited."""


class OwnConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that doesn't wait for ever for a server that is there and says nothing."""

    patience_s: float | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Wait as psycopg does, for `patience_s` at most; then the connection is lost."""
        return super().wait(self._impatient(gen) if self.patience_s else gen, *args, **kwargs)

    def _impatient(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """The same generator with an end: psycopg resumes it ten times a second though nothing came."""
        patience_s = self.patience_s or 0.0
        deadline = monotonic() + patience_s
        ready = None
        try:
            while True:
                ready = yield gen.send(ready)
                if not ready and monotonic() >= deadline:
                    self.close()
                    message = f"no answer within {patience_s:.0f} s"
                    raise psycopg.OperationalError(message)
        except StopIteration as end:
            answer: T = end.value
            return answer


def connect(settings: Settings, *, name: str = "hesape") -> OwnConnection:
    """A new connection in autocommit, set up for our statements and for nobody else's."""
    given = dict(settings.conninfo)
    own: dict[str, Any] = {
        "connect_timeout": max(2, round(settings.connect_timeout)),  # libpq takes 1 for 2
        "application_name": name,
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
    } | given
    own["client_encoding"] = "UTF8"
    if name != "hesape":
        own["application_name"] = name
    if not settings.pooler:
        session = [f"-c {key}={value}" for key, value in _session(settings)]
        own["options"] = " ".join([given.get("options") or "", *session]).strip()
    # Arguments, not a string to parse: no error of the parser can show a password
    conn = OwnConnection.connect("", autocommit=True, **own)
    conn.patience_s = settings.statement_timeout + _SPARE_S
    conn.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    if settings.pooler:
        conn.prepare_threshold = None
    return conn


def _session(settings: Settings) -> list[tuple[str, str]]:
    limits = {
        "default_transaction_isolation": "read\\ committed",
        "statement_timeout": f"{settings.statement_timeout * 1000:.0f}",
        "lock_timeout": f"{settings.lock_timeout * 1000:.0f}",
        "idle_in_transaction_session_timeout": "60000",
        "client_min_messages": "warning",
    }
    return [*_PLANS.items(), *limits.items()]


class Own:
    """A connection while a call uses it."""

    def __init__(self, conn: OwnConnection, *, prepare: bool) -> None:
        """Take a connection; statements are prepared at first use if `prepare`."""
        self.conn = conn
        self.prepare = prepare
        self.lost: type[StoreError] = OutcomeUnknownError
        """What it means when the connection breaks now."""
        self._cursor = conn.cursor(binary=True)
        self._ear = select.poll()
        self._ear.register(conn.fileno(), select.POLLIN)

    def rows(self, statement: bytes, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement that answers with rows."""
        return self.send(statement, params).fetchall()

    def count(self, statement: bytes, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement; how many rows it touched."""
        return self.send(statement, params).rowcount

    def send(self, statement: bytes, params: Mapping[str, Any] | None = None) -> Cursor:
        """Run a statement; in a pipeline its answer is there when that ends."""
        return self._cursor.execute(statement, params, prepare=self.prepare)

    @property
    def quiet(self) -> bool:
        """Whether an idle connection is still open: the server says nothing on one unless it ends it."""
        return not self.conn.closed and not self._ear.poll(0)

    @property
    def settled(self) -> bool:
        """Whether nothing is left open on it: no transaction, no answer that nobody read."""
        return not self.conn.closed and self.conn.pgconn.transaction_status == TransactionStatus.IDLE


class Pool:
    """The connections for statements, shared by threads."""

    def __init__(self, settings: Settings, dial: Callable[[], OwnConnection]) -> None:
        """Make connections by `dial`, up to the settings' number."""
        self._settings = settings
        self._dial = dial
        self._idle: list[Own] = []
        self._all: WeakSet[Own] = WeakSet()  # one whose thread died with it frees its place
        self._pending = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self) -> Own:
        """The connection used last, or a new one; `StoreUnavailableError` when none becomes free in time, or at all."""
        deadline = monotonic() + self._settings.pool_timeout
        while True:
            with self._changed:
                while self._must_wait:
                    if not self._changed.wait(deadline - monotonic()) and monotonic() >= deadline:
                        message = f"all {self._settings.pool_size} connections are in use (option pool_size)"
                        raise StoreUnavailableError(message)
                if self._closed:
                    message = "the driver was closed while this call waited for a connection"
                    raise StoreUnavailableError(message)
                if not self._idle:
                    self._pending += 1
                    break
                own = self._idle.pop()
            if own.quiet:
                return own
            self.drop(own)
        return self._open()

    @property
    def _must_wait(self) -> bool:
        return not self._closed and not self._idle and len(self._all) + self._pending >= self._settings.pool_size

    def _open(self) -> Own:
        own = None
        try:
            own = Own(self._dial(), prepare=not self._settings.pooler)
            return own
        finally:
            with self._changed:
                self._pending -= 1
                if own is None:
                    self._changed.notify()
                elif not self._closed:
                    self._all.add(own)

    def give(self, own: Own) -> None:
        """Take back a connection; one that isn't clean is closed."""
        if not own.settled:
            self.drop(own)
            return
        own.lost = OutcomeUnknownError
        with self._changed:
            if own in self._all:
                self._idle.append(own)
                self._changed.notify()
                return
        own.conn.close()  # the pool was closed meanwhile

    def drop(self, own: Own) -> None:
        """Close a connection and free its place."""
        own.conn.close()
        with self._changed:
            self._all.discard(own)
            self._changed.notify()

    def close(self) -> None:
        """Close what is idle; what is in use is closed when it comes back, and whoever waits is told."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._all = WeakSet()
            self._changed.notify_all()
        for own in idle:
            own.conn.close()
