"""What the bridge to a Que table says about itself. Loading this loads no client library."""

from __future__ import annotations

from typing import Final

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Driver, DriverSpec, Fact, Host

hookimpl = pluggy.HookimplMarker("hesape")


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape_postgres.que.bridge import QueDriver

    return QueDriver(settings)


SPEC: Final = DriverSpec(
    name="que",
    contract=CONTRACT,
    summary="a bridge: works a table of Que's schema 3; no full driver, it can't push, pause or lock",
    open=_open,
    facts=frozenset(Fact),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the bridge."""
    return SPEC
