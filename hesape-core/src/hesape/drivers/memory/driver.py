"""The memory driver: every call is one step under one lock."""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import ClassVar, Final, Self
from weakref import WeakValueDictionary

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.drivers.memory import coordinate, deliver, look
from hesape.drivers.memory.plugin import SPEC
from hesape.drivers.memory.settings import shared_name
from hesape.drivers.memory.store import Store
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow

_LONGEST_NAP_S: Final = 1.0
"""A clock that was moved while somebody waits is noticed after this long."""

_shared: WeakValueDictionary[tuple[int, str], Store] = WeakValueDictionary()
_sharing = threading.Lock()


def opened(name: str) -> Store:
    """A store of one's own, or the one that this process shares under `name` while a driver is open on it."""
    if not name:
        return Store()
    with _sharing:
        return _shared.setdefault((os.getpid(), name), Store())


def _after_fork() -> None:
    global _sharing  # noqa: PLW0603 - another thread may have held it when the process forked
    _sharing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class MemoryDriver(Driver):
    """Jobs in this process's memory.

    A forked child has a copy of the memory but not of the threads: it begins with a store of its own, empty, so that
    no job runs twice (E2).
    """

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, name: str = "") -> None:
        """Open a store of one's own, or the one that this process shares under `name`."""
        self._name = name
        self._pid = os.getpid()
        self._kept = opened(name)

    @classmethod
    def from_settings(cls, settings: ConnectionSettings) -> Self:
        """Open what a connection's settings name."""
        return cls(shared_name(settings))

    @property
    def clock(self) -> Callable[[], int]:
        """The store's clock, in microseconds since the epoch. Set it to move the time of tests."""
        return self._opened().clock

    @clock.setter
    def clock(self, clock: Callable[[], int]) -> None:
        with self._locked() as store:
            store.clock = clock
            store.changed.notify_all()

    def _opened(self) -> Store:
        if self._pid != os.getpid():
            clock = self._kept.clock
            self._kept, self._pid = opened(self._name), os.getpid()
            self._kept.clock = clock
        return self._kept

    @contextmanager
    def _locked(self) -> Iterator[Store]:
        store = self._opened()
        with store.changed:
            yield store

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        with self._locked() as store:
            deliver.store_rows(store, rows)

    def reserve(self, claim: Claim) -> Claimed:
        with self._locked() as store:
            return deliver.reserve(store, claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        with self._locked() as store:
            return deliver.delete(store, keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        with self._locked() as store:
            return deliver.release(store, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions)

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        with self._locked() as store:
            return deliver.fail(store, key, error=error, exceptions=exceptions)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        with self._locked() as store:
            return deliver.extend(store, keys, lease_us)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        with self._locked() as store:
            deliver.hand_back(store, keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        with self._locked() as store:
            return deliver.beat(store, worker, ttl_us, lease_us, but)

    def retire(self, worker: str) -> int:
        with self._locked() as store:
            return deliver.retire(store, worker)

    def rescue(self) -> int:
        with self._locked() as store:
            return deliver.rescue(store)

    def workers(self) -> list[WorkerRow]:
        with self._locked() as store:
            return deliver.workers(store)

    # Look and repair.

    def counts(self, queue: str) -> Counts:
        with self._locked() as store:
            return look.counts(store, queue)

    def queues(self) -> list[str]:
        with self._locked() as store:
            return look.queues(store)

    def oldest_pending(self, queue: str) -> int | None:
        with self._locked() as store:
            return look.oldest_pending(store, queue)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        with self._locked() as store:
            return look.failed(store, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        with self._locked() as store:
            return look.find(store, tenant, job_id).row()

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        with self._locked() as store:
            look.retry(store, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        with self._locked() as store:
            return look.forget(store, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        with self._locked() as store:
            return look.prune(store, older_than_us)

    def clear(self, queue: str) -> int:
        with self._locked() as store:
            return look.clear(store, queue)

    def pause(self, queue: str) -> None:
        with self._locked() as store:
            store.paused.add(queue)

    def resume(self, queue: str) -> None:
        with self._locked() as store:
            store.paused.discard(queue)
            store.changed.notify_all()

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        with self._locked() as store:
            return coordinate.lock(store, key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        with self._locked() as store:
            return coordinate.unlock(store, key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        with self._locked() as store:
            return coordinate.increment(store, key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        with self._locked() as store:
            return coordinate.read_flag(store, key)

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        with self._locked() as store:
            coordinate.write_flag(store, key, value, ttl_us)

    def erase_flag(self, key: str) -> None:
        with self._locked() as store:
            store.entries.pop(key, None)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        with self._locked() as store:
            while True:
                moment, now_us = look.next_pending(store, queues), store.clock()
                if moment is not None and moment <= now_us:
                    return True
                left = deadline - monotonic()
                if left <= 0:
                    return False
                until_due = _LONGEST_NAP_S if moment is None else (moment - now_us) / 1_000_000
                store.changed.wait(min(left, until_due, _LONGEST_NAP_S))

    def migrations(self) -> list[Migration]:
        return []

    def migrate(self) -> list[int]:
        return []

    def schema_version(self) -> int:
        return 0

    def now(self) -> int:
        return self.clock()

    def ping(self) -> str:
        return f"memory of one process, Python {platform.python_version()}"

    def close(self) -> None:
        """Keep the store: it lives as long as a driver that is open on it."""
