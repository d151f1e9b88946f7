"""What the Postgres driver says about itself. Loading this loads no client library."""

from __future__ import annotations

from typing import Final

import attrs
import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Fact, Host

hookimpl = pluggy.HookimplMarker("hesape")


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape_postgres.driver import open_driver

    return open_driver(settings)


SPEC: Final = DriverSpec(
    name="postgres",
    contract=CONTRACT,
    summary="PostgreSQL 13 and later, by psycopg 3",
    open=_open,
    capabilities=frozenset(Capability),
    facts=frozenset(Fact),
)
POOLER_SPEC: Final = attrs.evolve(SPEC, capabilities=frozenset((Capability.TRANSACTIONS,)))
"""What is left behind a transaction pooler, which shares sessions: neither LISTEN nor locks of a session."""


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
