"""The sqlite driver: each method is one turn at a connection; what it does there is in the module named beside it."""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final, TypeVar

from hesape.driver import Driver, DriverSpec
from hesape.drivers.sqlite import (
    claiming,
    coordinating,
    lending,
    looking,
    schema,
    settling,
    statements,
    storing,
    workers,
)
from hesape.drivers.sqlite.connections import Connections
from hesape.drivers.sqlite.errors import translate_errors
from hesape.drivers.sqlite.liveness import Liveness
from hesape.drivers.sqlite.plugin import SPEC
from hesape.drivers.sqlite.session import Session
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.drivers.sqlite.waiting import Watches
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow

T = TypeVar("T")
ABSENT_S: Final = 0.7
"""How long a worker's lock must be nobody's before the worker counts as dead."""


def machine_clock() -> int:
    """The machine's clock, in microseconds since the epoch: SQLite's own has milliseconds only (T2)."""
    return time.time_ns() // 1000


class SqliteDriver(Driver):
    """Jobs in one SQLite file."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: SqliteSettings) -> None:
        """Remember the file; it is opened, or made, when something is first asked of it."""
        self.settings = settings
        self.clock: Callable[[], int] = machine_clock
        """The store's clock. Set it to move the time of tests."""
        self._connections = Connections(settings, lambda: self.clock())  # noqa: PLW0108 - the clock may be set later
        self._liveness = Liveness(settings.path, settings.prefix)
        self._watches = Watches(settings.path)

    @property
    def path(self) -> Path:
        """The database file, absolute."""
        return self.settings.path

    def __repr__(self) -> str:
        return f"SqliteDriver({str(self.path)!r})"

    def _write(self, work: Callable[[Session], T], *, lasting: bool = True) -> T:
        return self._connections.write(work, lasting=lasting)

    def _lent(self, tx: object, work: Callable[[Session], T]) -> T:
        """Let `work` have a connection that the caller lent, in the caller's transaction (X1)."""
        if not self._connections.store_id:
            self._connections.read(lambda _: None)
        with translate_errors(self.path):
            return work(lending.join(self._connections, tx))

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        if tx is None:
            self._write(lambda session: storing.store(session, rows))
        else:
            self._lent(tx, lambda session: storing.store_lent(session, rows))

    def reserve(self, claim: Claim) -> Claimed:
        return self._write(lambda session: claiming.reserve(session, claim), lasting=bool(claim.done))

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        if tx is None:
            return self._write(lambda session: settling.delete(session, keys, repeat=repeat))
        return self._lent(tx, lambda session: settling.delete_each(session, keys, repeat=repeat))

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        def work(session: Session) -> bool:
            return settling.release(session, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions)

        return self._write(work) if tx is None else self._lent(tx, work)

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        def work(session: Session) -> bool:
            return settling.fail(session, key, error=error, exceptions=exceptions)

        return self._write(work) if tx is None else self._lent(tx, work)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        return self._write(lambda session: settling.extend(session, keys, lease_us), lasting=False)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        self._write(lambda session: settling.hand_back(session, keys), lasting=False)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        self._connections.read(lambda _: None)  # the folder of the locks is beside a database that exists
        with translate_errors(self.path):
            self._liveness.hold(worker)
        return self._write(lambda session: workers.beat(session, worker, ttl_us, lease_us, but), lasting=False)

    def retire(self, worker: str) -> int:
        freed = self._write(lambda session: workers.retire(session, worker), lasting=False)
        with translate_errors(self.path):
            self._liveness.release(worker)
        return freed

    def rescue(self) -> int:
        seen = self._connections.read(lambda session: workers.absent(session, self._liveness))
        if seen:  # a supervisor's end takes the lock along, and its process needs a moment to take it over
            time.sleep(ABSENT_S)
        freed, gone = self._write(lambda session: workers.rescue(session, self._liveness, seen), lasting=False)
        with translate_errors(self.path):
            for worker in gone:
                self._liveness.release(worker)
        return freed

    def workers(self) -> list[WorkerRow]:
        return self._connections.read(workers.workers)

    # Look and repair.

    def counts(self, queue: str) -> Counts:
        return self._connections.read(lambda session: looking.counts(session, queue))

    def queues(self) -> list[str]:
        return self._connections.read(looking.queues)

    def oldest_pending(self, queue: str) -> int | None:
        return self._connections.read(lambda session: looking.oldest_pending(session, queue))

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        return self._connections.read(lambda session: looking.failed(session, tenant, queue, limit, before))

    def find(self, tenant: str | None, job_id: str) -> Row:
        return self._connections.read(lambda session: looking.find(session, tenant, job_id))

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        self._write(lambda session: looking.retry(session, tenant, ids))

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        return self._write(lambda session: looking.forget(session, tenant, ids))

    def prune(self, older_than_us: int | None) -> int:
        return self._write(lambda session: looking.prune(session, older_than_us))

    def clear(self, queue: str) -> int:
        return self._write(lambda session: looking.clear(session, queue))

    def pause(self, queue: str) -> None:
        self._write(lambda session: session.alone(statements.PAUSE, lambda _: (queue,)))

    def resume(self, queue: str) -> None:
        self._write(lambda session: session.alone(statements.RESUME, lambda _: (queue,)))

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        return self._write(lambda session: coordinating.lock(session, key, owner, ttl_us), lasting=False)

    def unlock(self, key: str, owner: str) -> bool:
        return self._write(lambda session: coordinating.unlock(session, key, owner), lasting=False)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        return self._write(lambda session: coordinating.increment(session, key, by, ttl_us), lasting=False)

    def read_flag(self, key: str) -> str | None:
        return self._connections.read(lambda session: coordinating.read_flag(session, key))

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        self._write(lambda session: coordinating.write_flag(session, key, value, ttl_us))

    def erase_flag(self, key: str) -> None:
        self._write(lambda session: coordinating.erase_flag(session, key))

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        read = self._connections.read
        read(lambda _: None)  # the log that is watched is there while somebody has the database open
        with self._watches.naps() as naps:
            seen = -1
            moment: int | None = None
            while True:
                found = read(lambda session: int(session.rows("PRAGMA data_version")[0][0]))
                if found != seen:
                    seen, moment = found, read(lambda session: looking.next_pending(session, queues))
                ahead_s = float("inf") if moment is None else (moment - self.clock()) / 1_000_000
                left_s = min(deadline - monotonic(), ahead_s)
                if left_s <= 0:
                    return ahead_s <= 0
                naps.nap(left_s)

    def migrations(self) -> list[Migration]:
        return schema.migrations(self.settings.prefix)

    def migrate(self) -> list[int]:
        applied = self._connections.write(schema.migrate, checked=False)
        self._connections.read(lambda _: None)
        return applied

    def schema_version(self) -> int:
        if not self.path.exists():
            return 0
        return self._connections.write(schema.version, checked=False)

    def now(self) -> int:
        return self.clock()

    def ping(self) -> str:
        self._connections.read(lambda session: session.rows("SELECT count(*) FROM sqlite_schema"))
        return f"SQLite {sqlite3.sqlite_version}"

    def close(self) -> None:
        self._connections.close()
        self._liveness.close()
        self._watches.close()
