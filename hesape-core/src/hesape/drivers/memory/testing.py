"""The memory driver's harness for the conformance suite."""

from __future__ import annotations

import platform
from typing import Literal

from hesape.config import ConnectionSettings
from hesape.drivers.memory.driver import MemoryDriver, opened
from hesape.drivers.memory.store import Store
from hesape_conformance.harness import Harness, RawRow


class MemoryRaw:
    """A store in memory, read and changed without its driver."""

    def __init__(self, store: Store) -> None:
        """Look into `store`."""
        self._store = store

    def rows(self) -> list[RawRow]:
        """Every stored job."""
        with self._store.changed:
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
                for job in self._store.jobs.values()
            ]

    def overwrite(
        self, job_id: str, field: Literal["envelope", "tenant", "name", "queue", "attempts"], value: object
    ) -> None:
        """Set one field of a job, which then stands in the line that the field says."""
        with self._store.changed:
            job = self._store.jobs[job_id]
            self._store.remove(job)
            setattr(job, field, value)
            self._store.add(job)

    def entries(self) -> int:
        """How many locks, counters, flags, unique keys, workers and paused queues are kept."""
        with self._store.changed:
            return len(self._store.entries) + len(self._store.workers) + len(self._store.paused)


class MemoryHarness(Harness):
    """A namespace is a name under which this process shares a store."""

    driver = "memory"

    def __init__(self, url: str = "") -> None:
        """Keep the stores of the namespaces in use: without a driver open on them they would be gone."""
        super().__init__(url)
        self._kept: dict[str, MemoryDriver] = {}

    def server(self) -> tuple[str, str]:
        """The process itself."""
        return "memory of one process, Python", platform.python_version()

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """The shared store of that name."""
        self._keep(namespace)
        return ConnectionSettings(name="suite", driver=self.driver, url=f"memory://{namespace}")

    def raw(self, namespace: str) -> MemoryRaw:
        """The store itself."""
        self._keep(namespace)
        return MemoryRaw(opened(namespace))

    def drop(self, namespace: str) -> None:
        """Let the store go, and all that is in it: a check may still hold it by a driver that it closed."""
        self._kept.pop(namespace, None)
        forgotten, fresh = opened(namespace), Store()
        with forgotten.changed:
            for kept in ("jobs", "lanes", "held", "paused", "workers", "entries"):
                setattr(forgotten, kept, getattr(fresh, kept))

    def _keep(self, namespace: str) -> None:
        if namespace not in self._kept:
            self._kept[namespace] = MemoryDriver(namespace)


harness = MemoryHarness
