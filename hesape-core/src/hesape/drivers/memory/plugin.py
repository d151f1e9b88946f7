"""What the memory driver says about itself."""

from __future__ import annotations

from typing import Final

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Host
from hesape.plugins import hookimpl


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape.drivers.memory.driver import MemoryDriver

    return MemoryDriver.from_settings(settings)


SPEC: Final = DriverSpec(
    name="memory",
    contract=CONTRACT,
    summary="the strict reference: one process's memory, gone with it",
    open=_open,
    capabilities=frozenset((Capability.NOTIFICATIONS,)),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
