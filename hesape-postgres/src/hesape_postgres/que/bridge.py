"""The bridge: lets a hesape worker drain a Que table with ordinary handlers. It is no full driver.

Que's own rules hold where the two differ, since Ruby and Go programs work the same rows. A delivery is an advisory lock
and lasts as long as this process's session, whatever the lease. There is one counter, `error_count`: attempts are that
plus one, exceptions are that. A job that is given back waits as long as Que says, not as long as its handler asked.
What parks moves to a table of its own. Pushing, pausing, locks, counters and flags are refused: enqueue with
`QueClient`, or push on another connection.
"""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.errors import JobNotFoundError, StoreUnavailableError, UnsupportedError
from hesape.jobs import DEFAULT_QUEUE
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow
from hesape.times import MAX_DELAY_S
from hesape_postgres.que import parked, schema
from hesape_postgres.que.bridge_settings import read_settings
from hesape_postgres.que.client import default_retry_delay
from hesape_postgres.que.keys import Instant
from hesape_postgres.que.locker import Held, Locker
from hesape_postgres.que.looks import CLEAR, COUNTS, NEXT_DUE, OLDEST, QUEUED
from hesape_postgres.que.statements import SET_ERROR
from hesape_postgres.que_plugin import SPEC

_MOST_ERRORS = 2**31 - 1


class QueDriver(Driver):
    """The jobs of one queue of a Que table, under the tenant and the action of its connection's settings."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: ConnectionSettings) -> None:
        """Read the settings and open nothing; `ConfigError` without tenant and action."""
        self._options = read_settings(settings)
        self._locker = Locker(settings, self._options)
        self._closed = threading.Event()

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        _refuse("take a push: a row of Que's has no place for a grant; enqueue with hesape_postgres.que.QueClient")

    def reserve(self, claim: Claim) -> Claimed:
        lost = self._locker.destroy(claim.done, repeat=claim.repeat) if claim.done else []
        rows: list[Row] = []
        if self._mine(claim.queues):
            rows = self._locker.claim(claim.n, claim.token, claim.lease_us)
        with self._locker.session(StoreUnavailableError) as session:
            due = None
            if len(rows) < claim.n and self._mine(claim.queues):
                due = _us(session.rows(NEXT_DUE, (self._options.queue,))[0][0])
            return Claimed(rows, lost, frozenset(), session.now_us(), due)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        return self._locker.destroy(keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        def parameters(held: Held) -> tuple[Any, ...]:
            count = min(held.row.exceptions + spent, _MOST_ERRORS)
            delay_s = min(default_retry_delay(count), MAX_DELAY_S)
            return (count, delay_s, held.row.last_error if error is None else error, *held.key.parameters())

        return self._locker.settle(key, "release", SET_ERROR, parameters)

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        def parameters(held: Held) -> dict[str, Any]:
            queue, priority, run_at, job_id = held.key.parameters()
            return {
                "id": key.id,
                "tenant": held.row.tenant,
                "action": self._options.action,
                "queue": queue,
                "priority": priority,
                "run_at": run_at,
                "job_id": job_id,
                "error_count": min(exceptions, _MOST_ERRORS),
                "last_error": error,
            }

        return self._locker.settle(key, "fail", parked.PARK, parameters)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        with self._locker.session(StoreUnavailableError) as session:
            until_us = session.now_us() + lease_us
            held = [self._locker.current(key) for key in keys]
            return [None if one is None else max(one.row.reserved_until_us or 0, until_us) for one in held]

    def _hand_back(self, keys: Sequence[Key]) -> None:
        self._locker.hand_back(keys)

    # A worker's session is its liveness, and the server's word; there is nothing to renew and nobody to rescue.

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        return frozenset()

    def retire(self, worker: str) -> int:
        return 0

    def rescue(self) -> int:
        return 0

    def workers(self) -> list[WorkerRow]:
        return []

    # Look.

    def counts(self, queue: str) -> Counts:
        if not self._mine((queue,)):
            return Counts(0, 0, 0, 0)
        return Counts(*self._look(COUNTS, {"queue": self._options.queue})[0])

    def queues(self) -> list[str]:
        found = self._look(QUEUED, {"queue": self._options.queue})
        return [self._options.shown] if found[0][0] else []

    def oldest_pending(self, queue: str) -> int | None:
        if not self._mine((queue,)):
            return None
        return _us(self._look(OLDEST, {"queue": self._options.queue})[0][0])

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        if queue is not None and not self._mine((queue,)):
            return []
        before_us, before_id = before or (None, None)
        cursor = {"limit": limit, "before_us": before_us, "before_id": before_id}
        rows = self._look(parked.FAILED, {**self._seen(tenant), **cursor})
        return [parked.parked_row(row, self._locker.frame) for row in rows]

    def find(self, tenant: str | None, job_id: str) -> Row:
        rows = self._look(parked.FIND, {**self._seen(tenant), "ids": [job_id]})
        if not rows:
            raise JobNotFoundError(f"no job {job_id} is parked; what waits in a Que table can't be found by its id")
        return parked.parked_row(rows[0], self._locker.frame)

    # Repair.

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        self._change(parked.RETRY, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        return self._change(parked.FORGET, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        with self._locker.session() as session:
            return session.count(parked.PRUNE, {"queue": self._options.queue, "age": older_than_us})

    def clear(self, queue: str) -> int:
        if not self._mine((queue,)):
            return 0
        with self._locker.session() as session:
            return session.count(CLEAR, (self._options.queue,))

    def pause(self, queue: str) -> None:
        _refuse("pause a queue: Ruby and Go programs would go on")

    def resume(self, queue: str) -> None:
        _refuse("resume a queue, since it can't pause one")

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        _refuse("hold a lock for an application")

    def unlock(self, key: str, owner: str) -> bool:
        _refuse("hold a lock for an application")

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        _refuse("keep a counter")

    def read_flag(self, key: str) -> str | None:
        """None is ever set: a worker that looks for its signal to restart finds nothing."""
        return None

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        _refuse("keep a flag")

    def erase_flag(self, key: str) -> None:
        _refuse("keep a flag")

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        """Sleep: schema 3 notifies nobody."""
        self._closed.wait(timeout_s)
        return False

    def migrations(self) -> list[Migration]:
        return [
            Migration(1, "Que's own table, schema 3", f"{schema.CREATE};\n{schema.COMMENT}"),
            Migration(2, "jobs that hesape parked", parked.CREATE),
        ]

    def migrate(self) -> list[int]:
        before = self.schema_version()
        with self._locker.session(ready=False) as session:
            schema.migrate(session.conn)
            session.conn.execute(parked.CREATE)
        return [step.number for step in self.migrations() if step.number > before]

    def schema_version(self) -> int:
        with self._locker.session(StoreUnavailableError, ready=False) as session:
            version = schema.schema_version(session.conn)
            if not version:
                return 0
            schema.check_schema(session.conn)
            return 2 if session.rows(parked.EXISTS)[0][0] else 1

    def now(self) -> int:
        with self._locker.session(StoreUnavailableError, ready=False) as session:
            return session.now_us()

    def ping(self) -> str:
        with self._locker.session(StoreUnavailableError, ready=False) as session:
            return f"PostgreSQL {session.rows('show server_version')[0][0]}, a Que table"

    def close(self) -> None:
        self._closed.set()
        self._locker.close()
        self._closed.clear()

    def _mine(self, queues: Sequence[str]) -> bool:
        """Whether the table's queue is asked for: by its name, or as the default of this connection."""
        return self._options.shown in queues or DEFAULT_QUEUE in queues

    def _seen(self, tenant: str | None) -> dict[str, Any]:
        return {"queue": self._options.queue, "tenant": tenant}

    def _look(self, statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        with self._locker.session(StoreUnavailableError) as session:
            return session.rows(statement, parameters)

    def _change(self, statement: str, tenant: str | None, ids: Sequence[str]) -> int:
        parameters = {**self._seen(tenant), "ids": list(ids)}
        with self._locker.session() as session, session.conn.transaction():
            found = {row[0] for row in session.rows(parked.LOCK_PARKED, parameters)}
            for index, job_id in enumerate(ids):
                if job_id not in found:
                    error = JobNotFoundError(f"no job {job_id} is parked")
                    error.index = index
                    raise error
            return session.count(statement, parameters)


def _us(data: bytes | None) -> int | None:
    return None if data is None else Instant.received(data).as_us()


def _refuse(what: str) -> NoReturn:
    raise UnsupportedError(f"the que driver is a bridge and can't {what}")
