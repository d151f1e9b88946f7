"""`null` checks a push as every driver does, and drops the job."""

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


class NullDriver(LocalDriver):
    """Drops what it is given."""

    spec: ClassVar[DriverSpec]

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        pass


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    no_settings(settings)
    return NullDriver(settings.name)


NullDriver.spec = DriverSpec(
    name="null", contract=CONTRACT, kind="local", summary="checks a push and drops the job", open=_open
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return NullDriver.spec
