"""Our own connections: opened alike, kept for the next call, thrown away when anything about them is in doubt."""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol
from weakref import WeakSet

import pymysql
from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from hesape.errors import ConfigError
from hesape_mysql import tls
from hesape_mysql.errors import CLIENT_ERRORS, translate_errors, translated
from hesape_mysql.settings import Settings

# READ COMMITTED, since the gap locks of the default choke producers where poppers scan; strict, since a lax server
# would store less than it was given.
_SESSION: Final = (
    "set session transaction isolation level read committed;"
    "set session sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00',"
    " innodb_lock_wait_timeout = {lock_s}, lock_wait_timeout = {lock_s}, group_concat_max_len = 1000000;"
    "select @@max_allowed_packet"
)


class Answer(NamedTuple):
    """What one statement answered."""

    rows: tuple[tuple[Any, ...], ...]
    affected: int


class Session(Protocol):
    """What statements run on: a connection of our own, or one that was lent."""

    packet: int
    """How many bytes a statement may have."""

    def ask(self, sql: str, *, commits: bool = False) -> list[Answer]:
        """Send statements in one round trip and return an answer for each.

        `commits` says that they may commit something: should the answer get lost, the outcome is unknown.
        """


class OwnSession:
    """A connection of our own."""

    def __init__(self, connection: pymysql.Connection[Any], packet: int) -> None:
        """Use a connection that was opened with `connect`."""
        self.connection = connection
        self.packet = packet
        self.committing = False
        self.in_step = True
        """Whether the last reply was read whole; an interruption in its middle leaves the rest in the socket."""
        self._cursor = Cursor(connection)

    def ask(self, sql: str, *, commits: bool = False) -> list[Answer]:
        """Send statements, divided by semicolons, in one round trip; the first that fails ends them."""
        self.committing = self.committing or commits
        self.in_step = False
        cursor = self._cursor
        answers = []
        try:
            cursor.execute(sql)
            while True:
                answers.append(Answer(cursor.fetchall() if cursor.description else (), cursor.rowcount))
                if not cursor.nextset():
                    break
        except MySQLError:
            self.in_step = self.connection.open
            raise
        self.in_step = True
        return answers

    @property
    def silent(self) -> bool:
        """Whether the server has said nothing unasked: what it says then is goodbye (2006, 2013)."""
        sock = self.connection._sock  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public way to ask
        if sock is None:
            return False
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, by the last statement that wrote or ended one."""
        status: int = self.connection.server_status  # type: ignore[attr-defined]
        return bool(status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)

    def discard(self) -> None:
        """Close it without a word: the server ends its transaction and frees its locks."""
        self.connection._force_close()  # type: ignore[attr-defined]  # noqa: SLF001 - close() would write to it


def connect(settings: Settings, *, patience_s: float | None = None) -> OwnSession:
    """Open a connection with every setting that our statements rely on; raises as the contract says."""
    with translate_errors():
        try:
            connection = pymysql.Connection(
                host=settings.host,
                port=settings.port,
                unix_socket=settings.socket,
                user=settings.user,
                password=settings.password,
                database=settings.database,
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,
                connect_timeout=settings.connect_timeout_s,
                read_timeout=patience_s or settings.read_timeout_s,
                write_timeout=settings.read_timeout_s,
                program_name="hesape",
                ssl_disabled=settings.tls == "off",
                ssl=tls.context(settings),
                defer_connect=True,
            )
            tls.open_with(connection, settings)
        except RuntimeError as error:  # the server's way of checking passwords needs the `cryptography` package
            message = f"{settings.where}: {error}"
            raise ConfigError(message) from error
        session = OwnSession(connection, 0)
        answers = session.ask(_SESSION.format(lock_s=max(1, round(settings.lock_timeout_s))))
        session.packet = int(answers[-1].rows[0][0])
        return session


class Pool:
    """Idle connections, the warmest first. Threads may share it, and a forked child begins with none (E2).

    Nothing counts what is in use: an interruption thrown into a thread at any line loses a connection at worst, which
    its collection closes, and never a place in the pool.
    """

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet."""
        self.settings = settings
        self._idle: deque[OwnSession] = deque()
        _pools.add(self)

    @contextmanager
    def session(self) -> Iterator[OwnSession]:
        """A connection for one call. Errors are translated; it is kept only when it is surely clean."""
        session = self._take()
        try:
            yield session
        except CLIENT_ERRORS as error:
            self._recover(session)
            raise translated(error, committing=session.committing) from error
        except BaseException:
            self._recover(session)
            raise
        self._keep(session)

    def _take(self) -> OwnSession:
        while True:
            try:
                session = self._idle.pop()
            except IndexError:
                return connect(self.settings)
            if session.silent:
                session.committing = False
                return session
            session.discard()

    def _keep(self, session: OwnSession) -> None:
        if session.in_transaction or len(self._idle) >= self.settings.pool:
            session.discard()
        else:
            self._idle.append(session)

    def _recover(self, session: OwnSession) -> None:
        """After a refusal the connection is as good as before, once it is rolled back; out of step it never is."""
        if session.in_step:
            with contextlib.suppress(*CLIENT_ERRORS):
                session.connection.rollback()
                self._keep(session)
                return
        session.discard()

    def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            with contextlib.suppress(IndexError, *CLIENT_ERRORS):
                self._idle.pop().connection.close()

    def forget(self) -> None:
        """Let go of everything in a forked child: the sockets are the parent's, and not a byte goes out on them."""
        idle, self._idle = self._idle, deque()
        for session in idle:
            session.discard()


_pools: WeakSet[Pool] = WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
