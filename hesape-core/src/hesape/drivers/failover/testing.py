"""The failover driver's harness for the conformance suite: two stores in memory, the first of which takes no pushes.

So every push fails over, and every job ends in another store than the one that has the locks.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import attrs

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.drivers.memory.driver import MemoryDriver, opened
from hesape.drivers.memory.store import Store
from hesape.errors import StoreRefusedError
from hesape.records import NewRow
from hesape_conformance.harness import Harness, NoHost, RawRow

_KEPT = ("jobs", "lanes", "held", "paused", "workers", "entries")


_NO_UNIQUE: Final = dict.fromkeys(
    ("P5", "I2", "F2", "F4", "B1"),
    "a composite refuses unique_for (I2), which this rule's checks use among other things",
)


class Plain(MemoryDriver):
    """Claims nothing, as the failover driver's own spec does: what it can depends on its members."""

    spec: ClassVar[DriverSpec] = attrs.evolve(MemoryDriver.spec, capabilities=frozenset())


class Refusing(Plain):
    """Takes no push, and answers everything else."""

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        message = "the first store takes no pushes here"
        raise StoreRefusedError(message)


class TwoStores(NoHost):
    """The application behind the driver: it has two connections, named after the namespace."""

    def driver(self, connection: str) -> Driver:
        """The store of that name; the first takes no pushes."""
        return Refusing(connection) if connection.endswith("-1") else Plain(connection)


class FailoverRaw:
    """Both stores, read and changed without their drivers."""

    def __init__(self, stores: Sequence[Store]) -> None:
        """Look into `stores`."""
        self._stores = stores

    def rows(self) -> list[RawRow]:
        """Every stored job."""
        return [
            RawRow(
                id=job.id,
                envelope=job.envelope,
                tenant=job.tenant,
                name=job.name,
                queue=job.queue,
                state=job.state.value,
                priority=job.priority,
                attempts=job.attempts,
                lapses=job.lapses,
                exceptions=job.exceptions,
                last_error=job.last_error,
            )
            for store in self._stores
            for job in list(store.jobs.values())
        ]

    def overwrite(
        self, job_id: str, field: Literal["envelope", "tenant", "name", "queue", "attempts"], value: object
    ) -> None:
        """Set one field of a job."""
        for store in self._stores:
            with store.changed:
                if (job := store.jobs.get(job_id)) is not None:
                    store.remove(job)
                    setattr(job, field, value)
                    store.add(job)

    def entries(self) -> int:
        """How many things are kept beside the jobs."""
        return sum(len(store.entries) + len(store.workers) + len(store.paused) for store in self._stores)


class FailoverHarness(Harness):
    """Each namespace is two stores of this process."""

    driver = "failover"
    known_failures: ClassVar[Mapping[str, str]] = _NO_UNIQUE | {
        "N4": "it refuses unique_for (I2), and its members must be configured beside it",
        "G4": "job.connection_name is the member's, as the contract says of failover",
    }

    def __init__(self, url: str = "") -> None:
        """Keep the stores of the namespaces in use."""
        super().__init__(url)
        self._kept: dict[str, list[MemoryDriver]] = {}

    def server(self) -> tuple[str, str]:
        """The process itself."""
        return "failover over two memories of one process, Python", platform.python_version()

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """A connection over the namespace's two stores."""
        self._stores(namespace)
        return ConnectionSettings(name="suite", driver=self.driver, options={"connections": _names(namespace)})

    def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
        """A new driver over them."""
        return self.spec().open(self.settings(namespace), TwoStores())

    def raw(self, namespace: str) -> FailoverRaw:
        """The stores themselves."""
        return FailoverRaw(self._stores(namespace))

    def drop(self, namespace: str) -> None:
        """Let both stores go, and all that is in them."""
        for store in self._stores(namespace):
            fresh: Any = Store()
            with store.changed:
                for kept in _KEPT:
                    setattr(store, kept, getattr(fresh, kept))
        self._kept.pop(namespace, None)

    def _stores(self, namespace: str) -> list[Store]:
        names = _names(namespace)
        self._kept.setdefault(namespace, [MemoryDriver(name) for name in names])
        return [opened(name) for name in names]


def _names(namespace: str) -> list[str]:
    return [f"{namespace}-1", f"{namespace}-2"]


harness = FailoverHarness
