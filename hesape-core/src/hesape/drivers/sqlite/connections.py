"""The connections of one driver to its file: one that writes, one that reads."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

from hesape.drivers.sqlite import schema
from hesape.drivers.sqlite.errors import translated
from hesape.drivers.sqlite.session import Named, Session
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.errors import StoreBusyError, StoreRefusedError

T = TypeVar("T")

_OLDEST: Final = (3, 37)
"""STRICT tables came with it: a value of another type, written by somebody else, can't stop a claim."""
_WAL_LIMIT: Final = 64 * 1024 * 1024
_FORK_PATIENCE_S: Final = 10.0

_turns: WeakValueDictionary[Path, _Turn] = WeakValueDictionary()
_living: WeakSet[Connections] = WeakSet()
_registry: Final = threading.RLock()


class _Turn:
    """Whose turn it is to write to one file in this process: SQLite's own waiting is slow and unfair."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


class Connections:
    """Opened when first used, closed before a fork and by `close`, opened anew afterwards.

    SQLite keeps its locks by process and inode and remembers them in memory, so that a child forked with an open
    connection would believe in locks that it hasn't got. So there is none at that moment (E2).
    """

    def __init__(self, settings: SqliteSettings, now: Callable[[], int]) -> None:
        """Remember how to connect."""
        self.settings = settings
        self.now = now
        self.store_id = ""
        """The random id of the store; empty until somebody connected."""
        self.named = Named(settings.prefix)
        self._reading = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._level = settings.synchronous
        """What the writing connection is set to."""
        self._pid = os.getpid()
        self._file = (0, 0)
        """Device and inode of what is open."""
        with _registry:
            self._turn = _turns.setdefault(settings.path, _Turn())
            _living.add(self)

    def write(self, work: Callable[[Session], T], *, lasting: bool = True, checked: bool = True) -> T:
        """Let `work` have the connection that writes; commit what it began, roll it back when it raises.

        What isn't `lasting` may be undone by a power cut, though by no crash of a process: a claim and a beat, which
        then are undone in effect anyway. Without `checked` the schema isn't looked at.
        """
        deadline = monotonic() + self.settings.timeout_s
        turn = self._turn.lock
        if not turn.acquire(timeout=self.settings.timeout_s):
            message = f"the SQLite store {self.settings.path} is busy: other threads of this process write to it"
            raise StoreBusyError(message)
        try:
            return self._in_turn(work, deadline, lasting=lasting, checked=checked)
        except (sqlite3.Error, OSError) as error:
            raise translated(error, self.settings.path) from error
        finally:
            turn.release()

    def read(self, work: Callable[[Session], T]) -> T:
        """Let `work` have the connection that reads."""
        if not self.store_id or self._reader is None or self._pid != os.getpid() or self._is_gone():
            self.write(lambda _: None)
        with self._reading:
            try:
                if self._reader is None:
                    self._reader = self._connect(self.settings.timeout_s)
                    self._reader.execute("PRAGMA query_only = 1")
                return self._readable(work, self._reader, None)
            except (sqlite3.Error, OSError) as error:
                raise translated(error, self.settings.path) from error

    def __del__(self) -> None:
        """Close what a driver that nobody closed had open; in a child, never its parent's."""
        self.drop()

    def close(self) -> None:
        """Close both."""
        with self._turn.lock, self._reading:
            self._drop()

    def _in_turn(self, work: Callable[[Session], T], deadline: float, *, lasting: bool, checked: bool) -> T:
        if self._pid != os.getpid() or self._is_gone():
            self.forget()
        if self._writer is None:
            self._writer, self._level = self._open_writer(deadline), self.settings.synchronous
            self._file = _identity(self.settings.path)
        writer = self._writer
        if checked and not self.store_id:
            self._check_schema(writer, deadline)
        level = self.settings.synchronous if lasting else "NORMAL"
        if level != self._level:
            writer.execute(f"PRAGMA synchronous = {level}")
            self._level = level
        return self._readable(work, writer, deadline)

    def _readable(self, work: Callable[[Session], T], connection: sqlite3.Connection, deadline: float | None) -> T:
        """Do `work`; should it meet a forged text that isn't UTF-8, do it once more with such text escaped."""
        try:
            return self._committed(work, connection, deadline)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error) or connection.text_factory is not str:
                raise
        connection.text_factory = _escaped
        return self._committed(work, connection, deadline)

    def _committed(self, work: Callable[[Session], T], connection: sqlite3.Connection, deadline: float | None) -> T:
        try:
            result = work(Session(connection.cursor(), self.named, self.now, deadline))
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _is_gone(self) -> bool:
        """Whether the file was removed or replaced: what is written to the old one is lost, and nobody would know.

        The connection isn't closed then: SQLite would remove the log of the new file, which has the same name.
        """
        return self._writer is not None and _identity(self.settings.path) != self._file

    def _check_schema(self, writer: sqlite3.Connection, deadline: float) -> None:
        def look(session: Session) -> str:
            found = schema.version(session)
            if found < schema.LATEST and not self.settings.manual:
                schema.migrate(session)
            else:
                schema.check(found)
            return schema.store_id(session)

        self.store_id = self._committed(look, writer, deadline)

    def _open_writer(self, deadline: float) -> sqlite3.Connection:
        path = self.settings.path
        if sqlite3.sqlite_version_info < _OLDEST:
            message = f"SQLite {sqlite3.sqlite_version} found, {'.'.join(map(str, _OLDEST))} or newer is needed"
            raise StoreRefusedError(message)
        if not path.parent.is_dir():
            message = (
                f"the folder {path.parent} of the SQLite store {path.name} doesn't exist: create it, or mend the path"
            )
            raise StoreRefusedError(message)
        # Payloads are nobody else's business; the files beside it inherit this. Only a file that wasn't there: closing
        # one that this process has open already would end the locks of its other connections.
        try:
            os.close(os.open(path.resolve(), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o660))
        except FileExistsError:
            if path.is_dir() or not os.access(path, os.R_OK):
                message = f"the SQLite store {path} is a folder, or this process may not read it"
                raise StoreRefusedError(message) from None
        writer = self._connect(0, deadline)
        try:
            _begin_log(Session(writer.cursor(), self.named, self.now, deadline), path)
        except BaseException:
            writer.close()
            raise
        return writer

    def _connect(self, timeout_s: float, deadline: float | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.settings.path, timeout=timeout_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            session = Session(connection.cursor(), self.named, self.now, deadline)
            session.rows(f"PRAGMA synchronous = {self.settings.synchronous}")
            session.rows(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _drop(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
        self.store_id = ""

    # Around a fork.

    def locks(self) -> tuple[threading.Lock, threading.Lock]:
        """What nobody may hold when the process forks, in the order of taking."""
        return self._turn.lock, self._reading

    def drop(self) -> None:
        """Close before a fork; whoever calls holds the locks."""
        if self._pid == os.getpid():
            self._drop()

    def forget(self) -> None:
        """Never touch again what a parent left open, not even to close it: that would take the parent's locks away."""
        for connection in (self._reader, self._writer):
            if connection is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
        self._reader = self._writer = None
        self.store_id = ""
        self._pid = os.getpid()

    def begin_in_child(self) -> None:
        """Begin anew in a forked child, with locks that nobody holds."""
        self.forget()
        self._reading = threading.Lock()
        self._turn = _turns.setdefault(self.settings.path, _Turn())


def _begin_log(session: Session, path: Path) -> None:
    mode = session.alone("PRAGMA journal_mode = WAL", lambda _: ())[0][0]
    if mode != "wal":
        message = f"the SQLite store {path} can't have a write-ahead log (its journal mode stays {mode!r})"
        raise StoreRefusedError(message)


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)  # noqa: PTH116 - every call comes here, and a path object costs more than the look
    except FileNotFoundError:
        return 0, 0
    return found.st_dev, found.st_ino


def _escaped(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")


_held_for_fork: Final[dict[int, threading.Lock]] = {}


def _before_fork() -> None:
    _registry.acquire()
    living = list(_living)
    wanted = sorted(
        ((place, id(lock), lock) for each in living for place, lock in enumerate(each.locks())), key=itemgetter(0)
    )
    locks = {key: lock for _, key, lock in wanted}
    _held_for_fork.update((key, lock) for key, lock in locks.items() if lock.acquire(timeout=_FORK_PATIENCE_S))
    for connections in living:
        if all(id(lock) in _held_for_fork for lock in connections.locks()):
            connections.drop()


def _after_in_parent() -> None:
    for lock in _held_for_fork.values():
        lock.release()
    _held_for_fork.clear()
    _registry.release()


def _after_in_child() -> None:
    _held_for_fork.clear()
    _turns.clear()
    for connections in list(_living):
        connections.begin_in_child()
    _registry.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
