"""`deferred` runs jobs on a few threads of this process, after `push` has returned; drained when the process ends."""

from __future__ import annotations

import atexit
from collections.abc import Iterable, Sequence
from typing import ClassVar

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.drivers.local.driver import LocalDriver
from hesape.drivers.local.pool import Pool
from hesape.drivers.local.settings import allow, whole
from hesape.jobs import Job
from hesape.records import NewRow

hookimpl = pluggy.HookimplMarker("hesape")


class DeferredDriver(LocalDriver):
    """A bounded pool of threads over what waits, in the order of due time, priority and push.

    What is due when the process ends is run before it does; what isn't due yet is dropped, and the log says how many.
    """

    spec: ClassVar[DriverSpec]

    def __init__(self, connection: str, host: Host, *, threads: int, room: int) -> None:
        """Run at most `threads` jobs at once through `host`, with at most `room` waiting."""
        super().__init__(connection)
        self._host = host
        self._threads, self._room = threads, room
        self.forked()
        atexit.register(self.close)

    def forked(self) -> None:
        """Begin with nothing: what waits is the parent's, and so are its threads."""
        self.pool = Pool(self._connection, self._host.run, threads=self._threads, room=self._room, ended=self._ended)

    def _ended(self, job: Job) -> None:
        pass

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        self._refuse_unique(rows)
        self.take([(self._due(row), row.priority, self._job(row)) for row in rows])

    def take(self, jobs: Iterable[tuple[int, int, Job]]) -> None:
        """Run jobs of this connection, all or none, each with its due time in microseconds and its priority."""
        self.pool.put(jobs)

    def close(self) -> None:
        """Run what is due, drop what isn't, and end the threads; a push afterwards starts anew."""
        self.pool.close()


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    allow(settings, "threads", "room")
    return DeferredDriver(
        settings.name, host, threads=whole(settings, "threads", 4), room=whole(settings, "room", 10_000)
    )


DeferredDriver.spec = DriverSpec(
    name="deferred",
    contract=CONTRACT,
    kind="local",
    summary="runs jobs on threads of this process after push; keeps nothing",
    open=_open,
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return DeferredDriver.spec
