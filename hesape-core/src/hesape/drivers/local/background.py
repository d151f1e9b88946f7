"""`background` hands its jobs to a child process, on its standard input; what it was given is finished at the end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from typing import ClassVar

import pluggy

from hesape.config import APP_VARIABLE, ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.drivers.local.child import Child
from hesape.drivers.local.driver import LocalDriver
from hesape.drivers.local.settings import allow, seconds, text, whole
from hesape.errors import ConfigError, StoreUnavailableError
from hesape.records import NewRow

hookimpl = pluggy.HookimplMarker("hesape")


class BackgroundDriver(LocalDriver):
    """One child process for each process that pushes, started by its first push, and anew by the first after its end.

    The child, `hesape work --stdin`, checks each record as a worker does and runs it once, on a few threads. When this
    process ends, so does the child: it runs what is due within its grace, and drops what isn't.
    """

    spec: ClassVar[DriverSpec]

    def __init__(self, connection: str, argv: Sequence[str], *, grace_s: float) -> None:
        """Start children with `argv`; when this process ends they get `grace_s` for what they were given."""
        super().__init__(connection)
        self._argv = argv
        self._grace_s = grace_s
        self._child: Child | None = None
        self._starting = threading.Lock()
        atexit.register(self.close)

    def forked(self) -> None:
        """The child is the parent's: this process has one of its own."""
        self._starting = threading.Lock()
        if self._child is not None:
            self._child.disown()
            self._child = None

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        self._refuse_unique(rows)
        if not rows:
            return
        child = self._started()
        jobs = [(row, self._due(row)) for row in rows]
        try:
            child.give(jobs)
        except StoreUnavailableError:  # it takes no more, such as when it was asked to end
            self._started().give(jobs)

    def _started(self) -> Child:
        with self._starting:
            if self._child is None or self._child.over:
                self._child = Child(self._connection, self._argv)
            return self._child

    def close(self) -> None:
        """Have the child finish what it was given and end; a push afterwards starts anew."""
        with self._starting:
            child, self._child = self._child, None
        if child is not None:
            child.close(self._grace_s)


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape.drivers.local import inside

    allow(settings, "app", "threads", "room", "grace")
    threads, room = whole(settings, "threads", 4), whole(settings, "room", 10_000)
    grace_s = seconds(settings, "grace", 25.0)
    if inside.here.role:
        return inside.InsideDriver(settings.name, host, threads=threads, room=room, grace_s=grace_s)
    app = text(settings, "app", os.environ.get(APP_VARIABLE, ""))
    if not app:
        message = (
            f"connection {settings.name!r}: app isn't set, nor {APP_VARIABLE}; expected MODULE:ATTRIBUTE, such as"
            " jobs:app: the App whose handlers the child process runs"
        )
        raise ConfigError(message)
    argv = [sys.executable, "-m", "hesape", "work", settings.name, "--stdin", "--app", app]
    if settings.file is not None:
        argv += ["--config", str(settings.file)]
    return BackgroundDriver(settings.name, argv, grace_s=grace_s)


BackgroundDriver.spec = DriverSpec(
    name="background",
    contract=CONTRACT,
    kind="local",
    summary="hands jobs to a child process after push; keeps nothing",
    open=_open,
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return BackgroundDriver.spec
