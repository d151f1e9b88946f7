"""What the sqlite driver says about itself."""

from __future__ import annotations

from typing import Final

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Fact, Host
from hesape.plugins import hookimpl


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape.drivers.sqlite.driver import SqliteDriver
    from hesape.drivers.sqlite.settings import SqliteSettings

    return SqliteDriver(SqliteSettings.read(settings))


SPEC: Final = DriverSpec(
    name="sqlite",
    contract=CONTRACT,
    summary="the default: one file, durable, for the processes of one machine",
    open=_open,
    capabilities=frozenset((Capability.TRANSACTIONS, Capability.NOTIFICATIONS, Capability.SESSION_LIVENESS)),
    facts=frozenset((Fact.DURABLE, Fact.MULTI_PROCESS)),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
