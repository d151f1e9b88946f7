"""The settings of a connection: a libpq URL, and options of our own beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Self

import attrs
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError

_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,30}")
_SCHEMA = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PORTS = re.compile(r"[0-9]*(,[0-9]*)*")
_DRIVER_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "prefix": (str,),
    "schema": (str,),
    "migrate": (str,),
    "pooler": (bool,),
    "pool_size": (int,),
    "pool_timeout": (int, float),
    "connect_timeout": (int, float),
    "statement_timeout": (int, float),
    "lock_timeout": (int, float),
}


def _positive(instance: Settings, attribute: attrs.Attribute[Any], value: float) -> None:
    if value <= 0:
        message = f"{attribute.name} {value!r}: expected more than 0"
        raise ConfigError(message)


@attrs.frozen(kw_only=True)
class Settings:
    """How one connection is reached and used. Durations are seconds."""

    conninfo: Mapping[str, Any] = attrs.field(repr=False)
    """libpq's parameters; they may hold a password."""
    prefix: str = "hesape_"
    """What the names of tables begin with."""
    schema: str = "public"
    """Where the tables are. A lent connection needs no search path for them."""
    migrate: str = "auto"
    """`auto`: apply missing migrations at first use; `manual`: refuse to work until somebody did."""
    pooler: bool = False
    """Behind a transaction pooler: no prepared statement, no LISTEN, no lock of a session."""
    pool_size: int = attrs.field(default=10, validator=_positive)
    """The most connections for statements in one process."""
    pool_timeout: float = attrs.field(default=10.0, validator=_positive)
    """How long a call waits for a free one."""
    connect_timeout: float = attrs.field(default=5.0, validator=_positive)
    statement_timeout: float = attrs.field(default=30.0, validator=_positive)
    lock_timeout: float = attrs.field(default=5.0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        """Refuse names that can't be spelt in a statement as they are."""
        if not _PREFIX.fullmatch(self.prefix):
            message = f"prefix {self.prefix!r}: expected 1 to 31 of a-z, 0-9 and '_', not beginning with a digit"
            raise ConfigError(message)
        if not _SCHEMA.fullmatch(self.schema):
            message = f"schema {self.schema!r}: expected 1 to 63 of A-Z, a-z, 0-9 and '_', not beginning with a digit"
            raise ConfigError(message)
        if self.migrate not in {"auto", "manual"}:
            message = f"migrate {self.migrate!r}: expected 'auto' or 'manual'"
            raise ConfigError(message)

    @classmethod
    def read(cls, settings: ConnectionSettings) -> Self:
        """Read a connection's settings; `ConfigError` names what isn't understood, never the password."""
        options = dict(settings.options)
        for name, value in options.items():
            if name not in _DRIVER_OPTIONS:
                allowed = ", ".join(sorted(_DRIVER_OPTIONS))
                message = f"connection {settings.name!r}: unknown option {name!r}; the postgres driver has {allowed}"
                raise ConfigError(message)
            expected = _DRIVER_OPTIONS[name]
            if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
                kinds = " or ".join(kind.__name__ for kind in expected)
                found = type(value).__name__
                message = f"connection {settings.name!r}: option {name!r}: expected {kinds}, found {found}"
                raise ConfigError(message)
        return cls(conninfo=_conninfo(settings), **options)


def _conninfo(settings: ConnectionSettings) -> Mapping[str, Any]:
    try:
        found = conninfo_to_dict(settings.url)
    except ProgrammingError:
        # libpq quotes the whole address, password included: its words and its traceback end here
        message = f"connection {settings.name!r}: the url isn't a connection address that libpq understands"
        raise ConfigError(message) from None
    # A password with a bare '@', '/' or '?' ends up in one of these, and libpq would print it with its errors
    places = [str(found.get(name, "")) for name in ("host", "hostaddr", "dbname", "user")]
    if any("@" in place for place in places) or not _PORTS.fullmatch(str(found.get("port", ""))):
        message = f"connection {settings.name!r}: percent-encode '@', '/', ':' and '?' in the url's user and password"
        raise ConfigError(message)
    return found
