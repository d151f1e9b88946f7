"""The settings of local drivers: few, and an unknown one is refused by name."""

from __future__ import annotations

import math

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError


def no_settings(settings: ConnectionSettings) -> None:
    """Refuse every option."""
    allow(settings)


def allow(settings: ConnectionSettings, *known: str) -> None:
    """Refuse the options that aren't among `known`."""
    if settings.url.partition("://")[2]:
        message = f"connection {settings.name!r}: the driver {settings.driver!r} takes no address, found one in url"
        raise ConfigError(message)
    unknown = sorted(set(settings.options) - set(known))
    if unknown:
        wanted = ", ".join(known) or "none"
        message = (
            f"connection {settings.name!r}: the driver {settings.driver!r} has no option {unknown[0]!r} ({wanted})"
        )
        raise ConfigError(message)


def whole(settings: ConnectionSettings, name: str, default: int) -> int:
    """An option that is a whole number of at least 1."""
    value = settings.options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        message = f"connection {settings.name!r}: {name} is {value!r}, expected a whole number of at least 1"
        raise ConfigError(message)
    return value


def seconds(settings: ConnectionSettings, name: str, default: float) -> float:
    """An option that is a number of seconds, 0 or more."""
    value = settings.options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        message = f"connection {settings.name!r}: {name} is {value!r}, expected seconds, 0 or more"
        raise ConfigError(message)
    return value


def text(settings: ConnectionSettings, name: str, default: str) -> str:
    """An option that is text."""
    value = settings.options.get(name, default)
    if not isinstance(value, str):
        message = f"connection {settings.name!r}: {name} is {value!r}, expected text"
        raise ConfigError(message)
    return value
