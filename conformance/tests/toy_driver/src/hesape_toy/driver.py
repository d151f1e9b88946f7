"""The toy driver: each method is one step of the journal; what happens in it is in `deliver` and `look`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import ClassVar, Self

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow
from hesape_toy import deliver, look
from hesape_toy.journal import Journal
from hesape_toy.plugin import SPEC
from hesape_toy.settings import ToySettings
from hesape_toy.tables import Entry, Tables


class ToyDriver(Driver):
    """Jobs in one file."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: ToySettings) -> None:
        """Remember the file; nothing is opened yet."""
        self._journal = Journal(settings.path, settings.timeout_s)

    @classmethod
    def from_settings(cls, settings: ConnectionSettings) -> Self:
        """Open what a connection's settings name."""
        return cls(ToySettings.read(settings))

    @contextmanager
    def _step(self) -> Iterator[tuple[Tables, int]]:
        with self._journal.step() as tables:
            yield tables, self._clock()

    @staticmethod
    def _clock() -> int:
        """The store's clock is the machine's (T2)."""
        return time.time_ns() // 1000

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        with self._step() as (tables, now_us):
            deliver.store(tables, now_us, rows)

    def reserve(self, claim: Claim) -> Claimed:
        with self._step() as (tables, now_us):
            return deliver.reserve(tables, now_us, claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        with self._step() as (tables, now_us):
            return deliver.delete(tables, now_us, keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        with self._step() as (tables, now_us):
            return deliver.release(
                tables, now_us, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions
            )

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        with self._step() as (tables, now_us):
            return deliver.fail(tables, now_us, key, error=error, exceptions=exceptions)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        with self._step() as (tables, now_us):
            return deliver.extend(tables, now_us, keys, lease_us)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        with self._step() as (tables, now_us):
            deliver.hand_back(tables, now_us, keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        with self._step() as (tables, now_us):
            return deliver.beat(tables, now_us, worker, ttl_us, lease_us, but)

    def retire(self, worker: str) -> int:
        with self._step() as (tables, _):
            return deliver.retire(tables, worker)

    def rescue(self) -> int:
        with self._step() as (tables, now_us):
            return deliver.rescue(tables, now_us)

    def workers(self) -> list[WorkerRow]:
        with self._step() as (tables, _):
            return deliver.workers(tables)

    # Look.

    def counts(self, queue: str) -> Counts:
        with self._step() as (tables, now_us):
            return look.counts(tables, now_us, queue)

    def queues(self) -> list[str]:
        with self._step() as (tables, _):
            return look.queues(tables)

    def oldest_pending(self, queue: str) -> int | None:
        with self._step() as (tables, now_us):
            return look.oldest_pending(tables, now_us, queue)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        with self._step() as (tables, _):
            return look.failed(tables, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        with self._step() as (tables, _):
            return look.find(tables, tenant, job_id).row()

    # Repair.

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        with self._step() as (tables, now_us):
            look.retry(tables, now_us, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        with self._step() as (tables, _):
            return look.forget(tables, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        with self._step() as (tables, now_us):
            return look.prune(tables, now_us, older_than_us)

    def clear(self, queue: str) -> int:
        with self._step() as (tables, _):
            return look.clear(tables, queue)

    def pause(self, queue: str) -> None:
        with self._step() as (tables, _):
            tables.set_paused(queue, True)  # noqa: FBT003

    def resume(self, queue: str) -> None:
        with self._step() as (tables, _):
            tables.set_paused(queue, False)  # noqa: FBT003

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        with self._step() as (tables, now_us):
            return look.lock(tables, now_us, key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        with self._step() as (tables, now_us):
            return look.unlock(tables, now_us, key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        with self._step() as (tables, now_us):
            return look.increment(tables, now_us, key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        with self._step() as (tables, now_us):
            found = tables.entry(key, now_us)
            return None if found is None else found.value

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        with self._step() as (tables, now_us):
            tables.set_entry(key, Entry(value, None if ttl_us is None else now_us + ttl_us))

    def erase_flag(self, key: str) -> None:
        with self._step() as (tables, _):
            tables.set_entry(key, None)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        time.sleep(max(0.0, timeout_s))
        return False

    def migrations(self) -> list[Migration]:
        return []

    def migrate(self) -> list[int]:
        return []

    def schema_version(self) -> int:
        return 0

    def now(self) -> int:
        return self._clock()

    def ping(self) -> str:
        with self._step():
            return f"hesape-toy {version('hesape-toy')}, {self._journal.path}"

    def close(self) -> None:
        self._journal.close()
