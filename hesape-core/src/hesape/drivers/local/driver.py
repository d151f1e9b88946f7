"""What the local drivers share: they take a job and keep nothing, so there is nothing to look at or to repair."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import time_ns
from typing import Final, NoReturn
from weakref import WeakSet

from hesape import envelope, times
from hesape.driver import Driver
from hesape.errors import UnsupportedError
from hesape.jobs import Job, popped
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow


class LocalDriver(Driver):
    """Refuses everything but a push, a job's end and its own clock. A subclass says what becomes of a pushed row."""

    def __init__(self, connection: str) -> None:
        """Belong to a configured connection."""
        self._connection = connection
        _drivers.add(self)

    def forked(self) -> None:
        """Leave to the parent, in a forked process, what is the parent's."""

    def _due(self, row: NewRow) -> int:
        """When a row is due, by this machine's clock."""
        return max(self.now() + row.delay_us, row.run_at_us or 0)

    def _job(self, row: NewRow) -> Job:
        """The job of a row, attached to this driver, in its first and only delivery."""
        content = envelope.content_of(row.envelope)
        job = Job(
            content.id,
            content.name,
            content.tenant,
            content.payload,
            content.queue,
            content.display_name,
            content.authorized_by,
            content.action,
            times.from_us(self.now()),
            row.priority,
            content.attributes,
            attempts=1,
        )
        return popped(self, self._connection, job)

    def _refuse_unique(self, rows: Sequence[NewRow]) -> None:
        if any(row.unique for row in rows):
            self._cannot("keep a unique key")

    def _cannot(self, what: str) -> NoReturn:
        message = f"the driver {self.spec.name!r} keeps nothing and can't {what}; use a store, such as sqlite"
        raise UnsupportedError(message)

    # A job's end: its handler has run, and nothing is stored.

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        return []

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        return True

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        self._cannot("release a job")

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        return [self.now() + lease_us for _ in keys]

    def _hand_back(self, keys: Sequence[Key]) -> None:
        self._cannot("hand a job back")

    # Deliver, look, repair, coordinate.

    def reserve(self, claim: Claim) -> Claimed:
        """Refuse."""
        self._cannot("be worked: it runs or drops its jobs itself")

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        """Refuse."""
        self._cannot("register a worker")

    def retire(self, worker: str) -> int:
        """Refuse."""
        self._cannot("retire a worker")

    def rescue(self) -> int:
        """Refuse."""
        self._cannot("rescue jobs")

    def workers(self) -> list[WorkerRow]:
        """Refuse."""
        self._cannot("list workers")

    def counts(self, queue: str) -> Counts:
        """Refuse."""
        self._cannot("count jobs")

    def queues(self) -> list[str]:
        """Refuse."""
        self._cannot("list queues")

    def oldest_pending(self, queue: str) -> int | None:
        """Refuse."""
        self._cannot("look at waiting jobs")

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        """Refuse."""
        self._cannot("list failed jobs")

    def find(self, tenant: str | None, job_id: str) -> Row:
        """Refuse."""
        self._cannot("find a failed job")

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        """Refuse."""
        self._cannot("retry a job")

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        """Refuse."""
        self._cannot("forget a job")

    def prune(self, older_than_us: int | None) -> int:
        """Refuse."""
        self._cannot("prune failed jobs")

    def clear(self, queue: str) -> int:
        """Refuse."""
        self._cannot("clear a queue")

    def pause(self, queue: str) -> None:
        """Refuse."""
        self._cannot("pause a queue")

    def resume(self, queue: str) -> None:
        """Refuse."""
        self._cannot("resume a queue")

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        """Refuse."""
        self._cannot("hold a lock")

    def unlock(self, key: str, owner: str) -> bool:
        """Refuse."""
        self._cannot("free a lock")

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        """Refuse."""
        self._cannot("count")

    def read_flag(self, key: str) -> str | None:
        """Refuse."""
        self._cannot("read a flag")

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        """Refuse."""
        self._cannot("set a flag")

    def erase_flag(self, key: str) -> None:
        """Refuse."""
        self._cannot("erase a flag")

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        """Refuse."""
        self._cannot("wait for jobs")

    # Around.

    def migrations(self) -> list[Migration]:
        """None: there is no schema."""
        return []

    def migrate(self) -> list[int]:
        """Nothing to do."""
        return []

    def schema_version(self) -> int:
        """0: there is no schema."""
        return 0

    def now(self) -> int:
        """This machine's clock."""
        return time_ns() // 1000

    def ping(self) -> str:
        """Say what it is."""
        return self.spec.summary

    def close(self) -> None:
        """Nothing to close."""


_drivers: Final[WeakSet[LocalDriver]] = WeakSet()


def _after_in_child() -> None:
    for driver in list(_drivers):
        driver.forked()


os.register_at_fork(after_in_child=_after_in_child)
