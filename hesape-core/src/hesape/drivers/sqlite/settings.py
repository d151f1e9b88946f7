"""Which file, and how it is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError

_OPTIONS: Final = ("migrate", "path", "prefix", "synchronous", "timeout")
_SYNCHRONOUS: Final = ("NORMAL", "FULL", "EXTRA")
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_MAX_TIMEOUT_S: Final = 3600.0


@attrs.frozen(kw_only=True)
class SqliteSettings:
    """What a connection to a SQLite file needs to know."""

    path: Path
    """Absolute."""
    synchronous: str = "FULL"
    """FULL survives a power cut; NORMAL may lose the last pushes in one, though never in a crash of processes."""
    timeout_s: float = 5.0
    """How long a call waits for somebody else's transaction."""
    prefix: str = "hesape_"
    """What the names of the tables begin with."""
    manual: bool = False
    """Whether the schema is left to `hesape migrate`."""

    @classmethod
    def read(cls, connection: ConnectionSettings) -> SqliteSettings:
        """Read a connection's URL and options; `ConfigError` says what isn't understood."""
        location, query = _split(connection)
        options: dict[str, Any] = {**query, **connection.options}
        unknown = sorted(options.keys() - set(_OPTIONS))
        if unknown:
            _refuse(connection, f"unknown option {', '.join(unknown)}; the sqlite driver knows {', '.join(_OPTIONS)}")
        return cls(
            path=_path(connection, location, options),
            synchronous=_one_of(connection, options, "synchronous", _SYNCHRONOUS, "FULL"),
            timeout_s=_timeout(connection, options.get("timeout", 5.0)),
            prefix=_prefix(connection, options.get("prefix", "hesape_")),
            manual=_one_of(connection, options, "migrate", ("AUTO", "MANUAL"), "AUTO") == "MANUAL",
        )


def _refuse(connection: ConnectionSettings, problem: str) -> NoReturn:
    message = f"connection {connection.name!r}: {problem}"
    raise ConfigError(message)


def _split(connection: ConnectionSettings) -> tuple[str, dict[str, str]]:
    """The file in the URL, empty for none, and the options behind its question mark."""
    if not connection.url:
        return "", {}
    if ":memory:" in connection.url:
        _refuse(connection, "a SQLite database in memory would be another one for each connection; use memory://")
    try:
        parts = urlsplit(connection.url)
    except ValueError:  # brackets that hold no address
        parts = None
    if parts is None or parts.netloc or parts.fragment:
        _refuse(connection, "expected sqlite:///relative.db, sqlite:////absolute.db, or sqlite:// and the option path")
    return unquote(parts.path[1:]), dict(parse_qsl(parts.query))


def _path(connection: ConnectionSettings, location: str, options: Mapping[str, Any]) -> Path:
    named = options.get("path", "")
    if not isinstance(named, str | Path):
        _refuse(connection, f"path {named!r}: expected a text")
    if bool(location) == bool(str(named) if named else ""):
        _refuse(connection, "expected one file, in the URL (sqlite:///jobs.db) or in the option path")
    if str(named) == ":memory:":
        _refuse(connection, "a SQLite database in memory would be another one for each connection; use memory://")
    path = Path(location or named).expanduser()
    if "\0" in str(path):
        _refuse(connection, f"path {str(path)!r}: it holds a NUL")
    return (connection.folder / path).absolute()


def _one_of(
    connection: ConnectionSettings, options: Mapping[str, Any], name: str, allowed: tuple[str, ...], default: str
) -> str:
    value = options.get(name, default)
    if not isinstance(value, str) or value.upper() not in allowed:
        _refuse(connection, f"{name} {value!r}: expected {', '.join(allowed).lower()}")
    return value.upper()


def _timeout(connection: ConnectionSettings, value: object) -> float:
    try:
        seconds = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else -1.0
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _MAX_TIMEOUT_S:
        _refuse(connection, f"timeout {value!r}: expected seconds, more than 0 and at most {_MAX_TIMEOUT_S:.0f}")
    return seconds


def _prefix(connection: ConnectionSettings, value: object) -> str:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        _refuse(connection, f"prefix {value!r}: expected a letter, then up to 39 of a-z, 0-9 and '_'")
    return value
