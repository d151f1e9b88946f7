"""Which file, and how long to wait for it."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import attrs

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError


@attrs.frozen(kw_only=True)
class ToySettings:
    """What a connection to a journal needs to know."""

    path: Path
    """Absolute."""
    timeout_s: float = 5.0
    """How long a call waits while others use the file."""

    @classmethod
    def read(cls, settings: ConnectionSettings) -> Self:
        """Read a connection's URL and options; `ConfigError` says what isn't understood."""
        where = f"connection {settings.name!r}"
        unknown = sorted(settings.options.keys() - {"timeout"})
        if unknown:
            message = f"{where}: unknown option {', '.join(unknown)}; the toy driver knows timeout"
            raise ConfigError(message)
        parts = urlsplit(settings.url)
        if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
            message = f"{where}: expected toy:///relative.toy or toy:////absolute.toy"
            raise ConfigError(message)
        timeout_s = settings.options.get("timeout", 5.0)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or timeout_s <= 0:
            message = f"{where}: timeout {timeout_s!r}: expected seconds, more than 0"
            raise ConfigError(message)
        return cls(path=(settings.folder / unquote(parts.path[1:])).absolute(), timeout_s=float(timeout_s))
