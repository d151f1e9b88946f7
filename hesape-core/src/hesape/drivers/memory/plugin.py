"""What the memory driver says about itself."""

from __future__ import annotations

from typing import Final

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Host

hookimpl = pluggy.HookimplMarker("hesape")


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape.drivers.memory.driver import MemoryDriver

    return MemoryDriver.from_settings(settings)


CLAIMED: Final = frozenset((Capability.NOTIFICATIONS,))
SPEC: Final = DriverSpec(
    name="memory",
    contract=CONTRACT,
    summary="the strict reference: one process's memory, gone with it",
    open=_open,
    capabilities=CLAIMED,
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
