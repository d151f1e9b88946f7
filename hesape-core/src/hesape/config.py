"""Configuration: connections by name, from hesape.toml, pyproject.toml and the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class ConnectionSettings:
    """One connection as configured. Its URL may hold a password, so it is never shown."""

    name: str
    driver: str
    url: str = attrs.field(default="", repr=False)
    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """What else the connection's table sets, by name; a driver refuses what it doesn't know with `ConfigError`."""
    folder: Path = attrs.field(factory=Path.cwd)
    """What relative paths are against: the folder of the configuration file."""
