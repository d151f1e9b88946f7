"""What the toy driver says about itself."""

from __future__ import annotations

from typing import Final

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec, Fact, Host
from hesape.plugins import hookimpl


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape_toy.driver import ToyDriver

    return ToyDriver.from_settings(settings)


SPEC: Final = DriverSpec(
    name="toy",
    contract=(1, 0),
    summary="one file, a journal of JSON lines; for examples and small things",
    open=_open,
    facts=frozenset((Fact.DURABLE, Fact.MULTI_PROCESS)),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
