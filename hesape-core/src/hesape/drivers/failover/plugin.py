"""What the failover driver says about itself; what it can do depends on the stores behind it."""

from __future__ import annotations

from typing import Final

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Host
from hesape.plugins import hookimpl


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape.drivers.failover.driver import FailoverDriver
    from hesape.drivers.failover.settings import members_of

    return FailoverDriver(settings.name, members_of(settings, host))


SPEC: Final = DriverSpec(
    name="failover",
    contract=CONTRACT,
    summary="several stores behind one name: each push goes to the first that takes it",
    open=_open,
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
