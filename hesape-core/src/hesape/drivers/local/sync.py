"""`sync` runs the handler inside `push` and lets its error out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.drivers.local.driver import LocalDriver
from hesape.drivers.local.settings import no_settings
from hesape.records import NewRow

hookimpl = pluggy.HookimplMarker("hesape")


class SyncDriver(LocalDriver):
    """Runs each job when it is pushed. A delay is refused: nobody would be there to wait."""

    spec: ClassVar[DriverSpec]

    def __init__(self, connection: str, host: Host) -> None:
        """Run jobs through `host`."""
        super().__init__(connection)
        self._host = host

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        self._refuse_unique(rows)
        now = self.now()
        if any(row.delay_us or (row.run_at_us or 0) > now for row in rows):
            self._cannot("delay a job")
        for row in rows:
            self._host.run(self._job(row))


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    no_settings(settings)
    return SyncDriver(settings.name, host)


SyncDriver.spec = DriverSpec(
    name="sync", contract=CONTRACT, kind="local", summary="runs a job inside push; keeps nothing", open=_open
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SyncDriver.spec
