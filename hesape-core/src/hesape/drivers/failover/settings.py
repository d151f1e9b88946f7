"""The settings of a failover connection: `connections`, the names of its members, the preferred one first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import names
from hesape.errors import ConfigError, NameInvalidError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hesape.config import ConnectionSettings
    from hesape.driver import Driver, Host

_FEWEST = 2


def members_of(settings: ConnectionSettings, host: Host) -> Mapping[str, Driver]:
    """The drivers of the members, by name, in order; `ConfigError` for settings that lead nowhere."""
    what = f"connection {settings.name!r}"
    unknown = sorted(set(settings.options) - {"connections"})
    if unknown or settings.url:
        found = f"option {unknown[0]!r}" if unknown else "url"
        message = f"{what}: the driver 'failover' has no {found}; it takes connections, a list of connections' names"
        raise ConfigError(message)
    members = {name: host.driver(name) for name in _names(what, settings.options.get("connections"))}
    for name, driver in members.items():
        if driver.spec.kind != "store":
            message = f"{what}: its member {name!r} is a {driver.spec.name!r}, which keeps nothing; expected a store"
            raise ConfigError(message)
    return members


def _names(what: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        message = f'{what}: connections is {value!r}, expected a list of names such as ["orders", "main"]'
        raise ConfigError(message)
    if len(value) < _FEWEST or len(set(value)) < len(value):
        message = f"{what}: connections is {list(value)!r}, expected at least two different names"
        raise ConfigError(message)
    try:
        return [names.check_connection(name) for name in value]
    except NameInvalidError as error:
        message = f"{what}: connections: {error}"
        raise ConfigError(message) from error
