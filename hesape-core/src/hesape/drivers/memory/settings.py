"""The address of a store in memory: `memory://` is one's own, `memory://NAME` is shared by its name in the process."""

from __future__ import annotations

from urllib.parse import urlsplit

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError


def shared_name(settings: ConnectionSettings) -> str:
    """The name in the address, empty for a store of one's own; `ConfigError` for anything that isn't understood."""
    if settings.options:
        found = ", ".join(sorted(settings.options))
        message = f"connection {settings.name!r}: the memory driver has no options, found {found}"
        raise ConfigError(message)
    try:
        parts = urlsplit(settings.url)
    except ValueError:  # brackets that hold no address
        parts = None
    if parts is None or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        message = f"connection {settings.name!r}: expected memory:// or memory://NAME, found more in the address"
        raise ConfigError(message)
    return parts.netloc
