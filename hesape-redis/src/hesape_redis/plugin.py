"""What the Redis driver says about itself. Loading this loads no client library."""

from __future__ import annotations

from typing import Final

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Fact, Host

hookimpl = pluggy.HookimplMarker("hesape")


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape_redis.driver import open_driver

    return open_driver(settings)


SPEC: Final = DriverSpec(
    name="redis",
    contract=CONTRACT,
    summary="Redis 7.0 and later, or Valkey, by redis-py; as durable as the server's append-only file",
    open=_open,
    capabilities=frozenset((Capability.NOTIFICATIONS,)),
    facts=frozenset(Fact),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
