"""Configuration: connections by name, from hesape.toml, pyproject.toml and the environment.

A flag beats the environment, which beats the file. The file is checked as a whole when it is read, names and types of
everything in it; what it takes from the environment (`${NAME}`) is looked up when the connection is used, so that one
connection's missing secret doesn't stop work on another.

    default = "main"
    [connections.main]
    url = "sqlite:///jobs.db"
    [signing]
    sealing = "k2"
    keys = { k1 = "${OLD_KEY}", k2 = "${NEW_KEY}" }
    [worker]
    concurrency = 8
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import attrs

from hesape import config_file, names
from hesape.config_file import DEFAULT_URL, FILE, nearest
from hesape.envelope import NO_KEYS, Keys
from hesape.errors import ConfigError
from hesape.masking import mask

__all__ = [
    "ALIASES",
    "DEFAULT_URL",
    "Configuration",
    "ConnectionSettings",
    "canonical",
    "load",
    "mask",
    "nearest",
    "single",
]

CONNECTION_VARIABLE: Final = "HESAPE_CONNECTION"
"""Names the default connection, before the file does."""
FILE_VARIABLE: Final = "HESAPE_CONFIG"
"""Names the configuration file, instead of looking for it."""
APP_VARIABLE: Final = "HESAPE_APP"
"""Names the App, `MODULE:ATTRIBUTE`, for processes that run its handlers."""
ALIASES: Final = MappingProxyType({"postgresql": "postgres", "mariadb": "mysql", "rediss": "redis"})
"""Schemes and names under which a driver is known elsewhere."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


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
    file: Path | None = None
    """The configuration file, if there is one."""


@attrs.frozen(kw_only=True)
class Configuration:
    """What an application is configured with. Its repr shows no value of any connection."""

    file: Path | None = None
    """The file it came from; `None` when there is none."""
    source: str = ""
    """Where it came from, for messages."""
    folder: Path = attrs.field(factory=Path.cwd)
    default: str = ""
    """The connection to use when none is named; empty when the file leaves it open."""
    tables: Mapping[str, Mapping[str, Any]] = attrs.field(repr=False)
    """Every connection's table as written, by name."""
    worker: Mapping[str, Any] = attrs.field(factory=dict)
    """What `[worker]` sets: defaults for `hesape work`, under the environment and flags."""
    signing: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    environ: Mapping[str, str] | None = attrs.field(default=None, repr=False)
    """What `${NAME}` is looked up in; `None`: values are taken as they are."""

    @property
    def names(self) -> list[str]:
        """The configured connections, in the file's order."""
        return list(self.tables)

    def choose(self, name: str | None = None) -> str:
        """The name of a configured connection: `name`, else the default."""
        wanted = self.default if name is None else name
        known = ", ".join(self.tables)
        if not wanted:
            raise ConfigError(f"{self.source}: default: not set, and there are several connections: {known}")
        if wanted not in self.tables:
            hint = nearest(wanted, self.tables)
            raise ConfigError(f"no connection named {wanted!r}{hint} (configured: {known}; {self.source})")
        return wanted

    def settings(self, name: str | None = None) -> ConnectionSettings:
        """One connection, its `${NAME}`s replaced; `ConfigError` names the file and the key of what is wrong."""
        wanted = self.choose(name)
        key = f"connections.{wanted}"
        table = {entry: self._expand(value, f"{key}.{entry}") for entry, value in self.tables[wanted].items()}
        url, driver = table.pop("url", ""), table.pop("driver", "")
        driver = canonical(driver or self._scheme(url, key))
        return ConnectionSettings(
            name=wanted, driver=driver, url=url, options=table, folder=self.folder, file=self.file
        )

    def keys(self) -> Keys:
        """The signing keys, none when `[signing]` isn't there (G8)."""
        if not self.signing:
            return NO_KEYS
        secrets = {
            key_id: str(self._expand(secret, f"signing.keys.{key_id}")).encode()
            for key_id, secret in self.signing["keys"].items()
        }
        sealing = self.signing.get("sealing", next(iter(secrets)))
        try:
            return Keys(secrets=secrets, sealing=sealing, accept_unsealed=self.signing.get("accept_unsealed", False))
        except ConfigError as error:
            raise ConfigError(f"{self.source}: signing: {error}") from None

    def _scheme(self, url: str, key: str) -> str:
        if found := _SCHEME.match(url):
            return found.group(1)
        message = f"{self.source}: {key}.url: no scheme names the driver; expected one such as {DEFAULT_URL}"
        raise ConfigError(message)

    def _expand(self, value: Any, key: str) -> Any:
        if isinstance(value, list):
            return [self._expand(entry, f"{key}[{index}]") for index, entry in enumerate(value)]
        if isinstance(value, dict):
            return {name: self._expand(entry, f"{key}.{name}") for name, entry in value.items()}
        variables = self.environ
        if variables is None or not isinstance(value, str) or "${" not in value:
            return value
        for name in _VARIABLE.findall(value):
            if name not in variables:
                raise ConfigError(f"{self.source}: {key}: the environment variable {name} isn't set")
        if "${" in _VARIABLE.sub("", value):
            raise ConfigError(f"{self.source}: {key}: expected ${{NAME}}, with a name of letters, digits and '_'")
        return _VARIABLE.sub(lambda found: variables[found.group(1)], value)


def load(
    path: str | Path | None = None, *, environ: Mapping[str, str] | None = None, folder: Path | None = None
) -> Configuration:
    """Read the configuration: the file `path`, else HESAPE_CONFIG, else what is found from `folder` upwards.

    Found are a hesape.toml in the folder or the nearest parent, else a pyproject.toml with `[tool.hesape]` in the same
    way. Without any, the default connection is SQLite at ./hesape.db. `ConfigError` names file and key.
    """
    variables = dict(os.environ if environ is None else environ)
    start = (folder or Path.cwd()).absolute()
    named = path or variables.get(FILE_VARIABLE)
    found = config_file.open_file(start / named) if named else config_file.find(start)
    config_file.check(found)
    source = str(found.file) if found.file else f"no {FILE} in {start}"
    tables = found.table("connections") or {"default": {"url": DEFAULT_URL}}
    return Configuration(
        file=found.file,
        source=source,
        folder=found.file.parent if found.file else start,
        default=_chosen(variables, tables, source) or found.default(tables),
        tables=tables,
        worker=found.table("worker"),
        signing=found.table("signing"),
        environ=variables,
    )


def single(url: str, *, name: str = "default", options: Mapping[str, Any] | None = None) -> Configuration:
    """The configuration of one connection, without any file or variable."""
    table = {"url": url, **(options or {})}
    return Configuration(source="connect()", default=names.check_connection(name), tables={name: table})


def canonical(driver: str) -> str:
    """A driver's own name: aliases resolved, and what follows a `+` in a scheme left out."""
    base = driver.lower().partition("+")[0]
    return ALIASES.get(base, base)


def _chosen(variables: Mapping[str, str], tables: Mapping[str, object], source: str) -> str:
    chosen = variables.get(CONNECTION_VARIABLE, "")
    if chosen and chosen not in tables:
        known = f"{nearest(chosen, tables)} (configured: {', '.join(tables)}; {source})"
        raise ConfigError(f"{CONNECTION_VARIABLE}: no connection named {chosen!r}{known}")
    return chosen
