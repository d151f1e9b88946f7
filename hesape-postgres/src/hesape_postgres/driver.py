"""The Postgres driver: which statements a call runs is said in the module of its group."""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar, Final
from weakref import WeakSet

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.records import Claim, Claimed, Counts, Finding, Key, Migration, NewRow, Row, WorkerRow
from hesape_postgres import claiming, coordinating, looking, schema, settling, statements, storing
from hesape_postgres.lent import borrow
from hesape_postgres.link import Link
from hesape_postgres.liveness import Liveness
from hesape_postgres.marks import Marks
from hesape_postgres.notify import Announcer, Waiter
from hesape_postgres.plugin import POOLER_SPEC, SPEC
from hesape_postgres.settings import Settings

_drivers: WeakSet[PostgresDriver] = WeakSet()
_inherited: Final[list[Any]] = []
"""What a forked child got from its parent: kept, so that nothing says goodbye on the parent's connections (E2)."""


class PostgresDriver(Driver):
    """Jobs in tables of a PostgreSQL database."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: ConnectionSettings, options: Settings) -> None:
        """Open nothing yet."""
        self._link = Link(settings, options)
        self._begin()
        _drivers.add(self)

    def _begin(self) -> None:
        self._marks = Marks()
        self._waiter = Waiter(self._link)
        self._announcer = Announcer(self._link, self._waiter)
        self._liveness = Liveness(self._link)

    def begin_anew(self) -> None:
        """In a forked child: leave the parent's connections, threads and locks alone."""
        _inherited.append((self._link.pool, self._announcer, self._waiter, self._liveness))
        self._link.begin()
        self._begin()

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        if tx is not None:
            storing.store_lent(self._link, borrow(self._link, tx), rows)
        elif rows:
            storing.store(self._link, self._announcer, rows)

    def reserve(self, claim: Claim) -> Claimed:
        return claiming.reserve(self._link, self._marks, claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        if tx is not None:
            return settling.delete(self._link, borrow(self._link, tx), keys, repeat=repeat)
        with self._link.own() as own:
            return settling.delete(self._link, own, keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        lent = None if tx is None else borrow(self._link, tx)
        return settling.release(
            self._link, self._announcer, lent, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions
        )

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        if tx is not None:
            return settling.fail(self._link, borrow(self._link, tx), key, error=error, exceptions=exceptions)
        with self._link.own() as own:
            return settling.fail(self._link, own, key, error=error, exceptions=exceptions)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        return settling.extend(self._link, keys, lease_us)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        settling.hand_back(self._link, self._announcer, keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        return settling.beat(self._link, self._liveness, worker, ttl_us, lease_us, but)

    def retire(self, worker: str) -> int:
        return settling.retire(self._link, self._announcer, self._liveness, worker)

    def rescue(self) -> int:
        return settling.rescue(self._link, self._announcer)

    def workers(self) -> list[WorkerRow]:
        return settling.workers(self._link)

    # Look.

    def counts(self, queue: str) -> Counts:
        return looking.counts(self._link, queue)

    def queues(self) -> list[str]:
        return looking.queues(self._link)

    def oldest_pending(self, queue: str) -> int | None:
        return looking.oldest_pending(self._link, queue)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        return looking.failed(self._link, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        return looking.find(self._link, tenant, job_id)

    # Repair.

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        looking.retry(self._link, self._announcer, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        return looking.forget(self._link, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        return looking.prune(self._link, older_than_us)

    def clear(self, queue: str) -> int:
        return looking.clear(self._link, queue)

    def pause(self, queue: str) -> None:
        looking.pause(self._link, queue)

    def resume(self, queue: str) -> None:
        looking.resume(self._link, self._announcer, queue)

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        return coordinating.lock(self._link, key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        return coordinating.unlock(self._link, key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        return coordinating.increment(self._link, key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        return coordinating.read_flag(self._link, key)

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        coordinating.write_flag(self._link, key, value, ttl_us)

    def erase_flag(self, key: str) -> None:
        coordinating.erase_flag(self._link, key)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        return self._waiter.wait(queues, timeout_s)

    def migrations(self) -> list[Migration]:
        return schema.migrations(self._link.sql)

    def migrate(self) -> list[int]:
        return self._link.migrate()

    def schema_version(self) -> int:
        return self._link.version()

    def now(self) -> int:
        found: int = self._link.look(statements.TELL_NOW)[0][0]
        return found

    def ping(self) -> str:
        return self._link.product()

    def checkup(self) -> list[Finding]:
        return self._link.checkup()

    def close(self) -> None:
        self._announcer.close()
        self._waiter.close()
        self._liveness.close()
        self._link.pool.close()
        self._link.begin()
        self._begin()


class PoolerDriver(PostgresDriver):
    """The same behind a transaction pooler: it polls, and its workers live by their beats."""

    spec: ClassVar[DriverSpec] = POOLER_SPEC


def open_driver(settings: ConnectionSettings) -> PostgresDriver:
    """Open what a connection's settings name; connects at first use."""
    options = Settings.read(settings)
    return (PoolerDriver if options.pooler else PostgresDriver)(settings, options)


def _after_fork() -> None:
    for driver in list(_drivers):
        driver.begin_anew()


os.register_at_fork(after_in_child=_after_fork)
