"""A connection's address and options, checked before anything is opened.

    url = "mysql://user:password@host:3306/database"
    prefix = "hesape_"        what the tables' names begin with
    migrate = "auto"          or "manual": then a missing table is an error that names `hesape migrate`
    pool = 8                  how many idle connections are kept
    tls = "prefer"            or "off", "verify" (certificate and host name), with tls_ca = "ca.pem"
    connect_timeout = 5       seconds; also read_timeout = 15, lock_timeout = 5, poll = 0.016

Every option may stand in the address too (`?prefix=jobs_`); what the table says wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError

_SCHEMES: Final = frozenset({"mysql", "mariadb"})
# Lower case: on some file systems the server folds the case of table names.
_PREFIX: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TLS: Final = frozenset({"prefer", "off", "verify"})
_SECONDS: Final = {"connect_timeout": 5.0, "read_timeout": 15.0, "lock_timeout": 5.0, "poll": 0.016}
_LONGEST_S: Final = 3600.0
_MOST_KEPT: Final = 1000


@attrs.frozen(kw_only=True)
class Settings:
    """What a driver needs to know of its server."""

    host: str = "127.0.0.1"
    port: int = 3306
    socket: str | None = None
    """The path of a Unix socket, which replaces host and port."""
    user: str = "root"
    password: bytes = attrs.field(default=b"", repr=False)
    database: str = ""
    prefix: str = "hesape_"
    pool: int = 8
    migrate: bool = True
    tls: str = "prefer"
    tls_ca: str | None = None
    connect_timeout_s: float = _SECONDS["connect_timeout"]
    read_timeout_s: float = _SECONDS["read_timeout"]
    """How long an answer may take, before its outcome counts as unknown."""
    lock_timeout_s: float = _SECONDS["lock_timeout"]
    """How long a statement of our own waits for a row that somebody has locked (X1)."""
    poll_s: float = _SECONDS["poll"]
    """How often a waiting worker looks."""

    @property
    def where(self) -> str:
        """The server and the database, as errors name them: no user, no password."""
        return f"{self.socket or f'{self.host}:{self.port}'}/{self.database}"


class _Options:
    """The options of one connection, taken one by one; what is left at the end is an error."""

    def __init__(self, connection: ConnectionSettings, found: Mapping[str, Any]) -> None:
        self._name = connection.name
        self._left = dict(found)
        self._known: list[str] = []

    def refuse(self, what: str) -> NoReturn:
        message = f"connection {self._name!r}: {what}"
        raise ConfigError(message)

    def take(self, name: str, default: Any) -> Any:
        self._known.append(name)
        return self._left.pop(name, default)

    def text(self, name: str, default: str | None) -> str | None:
        value = self.take(name, default)
        if value is not None and not isinstance(value, str):
            self.refuse(f"{name} = {value!r}: expected text")
        return value

    def one_of(self, name: str, default: str, allowed: frozenset[str]) -> str:
        value = self.take(name, default)
        if value not in allowed:
            self.refuse(f"{name} = {value!r}: expected one of {', '.join(sorted(allowed))}")
        return str(value)

    def seconds(self, name: str) -> float:
        value = self._number(name, _SECONDS[name])
        if not 0 < value <= _LONGEST_S:
            self.refuse(f"{name} = {value}: expected seconds above 0 and at most {_LONGEST_S:.0f}")
        return value

    def count(self, name: str, default: int, most: int) -> int:
        value = self._number(name, default)
        if value != int(value) or not 0 <= value <= most:
            self.refuse(f"{name} = {value}: expected a whole number from 0 to {most}")
        return int(value)

    def _number(self, name: str, default: float) -> float:
        value = self.take(name, default)
        try:
            if isinstance(value, bool):
                raise TypeError  # noqa: TRY301 - true is no number of seconds
            return float(value)
        except (TypeError, ValueError):
            self.refuse(f"{name} = {value!r}: expected a number")

    def end(self) -> None:
        if self._left:
            self.refuse(
                f"unknown option {', '.join(sorted(self._left))}; the mysql driver takes {', '.join(self._known)}"
            )


def parse(connection: ConnectionSettings) -> Settings:
    """The settings of a connection; `ConfigError` for what isn't understood, never showing the address (E4)."""
    options = _Options(connection, {})
    try:
        url = urlsplit(connection.url)
        port = url.port
        in_address = dict(parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query)))
    except ValueError:
        options.refuse("the address can't be read; expected mysql://user:password@host:port/database")
    if url.scheme not in _SCHEMES:
        options.refuse(f"the address begins with {url.scheme!r}; expected mysql://user:password@host:port/database")
    options = _Options(connection, {**in_address, **connection.options})
    database = options.text("database", unquote(url.path.strip("/"))) or ""
    if not database:
        options.refuse("the address names no database; expected mysql://user:password@host:port/database")
    prefix = options.text("prefix", "hesape_") or ""
    if not _PREFIX.fullmatch(prefix):
        options.refuse(f"prefix = {prefix!r}: expected 1 to 40 of a-z, 0-9 and '_', beginning with a letter")
    tls_ca = options.text("tls_ca", None)
    settings = Settings(
        host=url.hostname or "127.0.0.1",
        port=port or 3306,
        socket=options.text("socket", None),
        user=unquote(url.username or "root"),
        password=unquote(url.password or "").encode(),
        database=database,
        prefix=prefix,
        pool=options.count("pool", 8, _MOST_KEPT),
        migrate=options.one_of("migrate", "auto", frozenset({"auto", "manual"})) == "auto",
        tls=options.one_of("tls", "verify" if tls_ca else "prefer", _TLS),
        tls_ca=None if tls_ca is None else str(Path(connection.folder, tls_ca)),
        connect_timeout_s=options.seconds("connect_timeout"),
        read_timeout_s=options.seconds("read_timeout"),
        lock_timeout_s=options.seconds("lock_timeout"),
        poll_s=options.seconds("poll"),
    )
    options.end()
    return settings
