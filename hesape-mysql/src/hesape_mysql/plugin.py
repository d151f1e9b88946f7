"""What the MySQL driver says about itself. No client library is imported here: being installed costs nothing."""

from __future__ import annotations

import pluggy

from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Fact, Host

hookimpl = pluggy.HookimplMarker("hesape")


def _open(settings: ConnectionSettings, host: Host) -> Driver:
    from hesape_mysql.driver import MySQLDriver

    return MySQLDriver.from_settings(settings)


SPEC = DriverSpec(
    name="mysql",
    contract=CONTRACT,
    summary="MariaDB 10.6 and MySQL 8 through PyMySQL",
    open=_open,
    capabilities=frozenset({Capability.TRANSACTIONS, Capability.NOTIFICATIONS, Capability.SESSION_LIVENESS}),
    facts=frozenset({Fact.DURABLE, Fact.MULTI_PROCESS, Fact.NETWORKED}),
)


@hookimpl
def hesape_register_driver() -> DriverSpec:
    """Offer the driver."""
    return SPEC
