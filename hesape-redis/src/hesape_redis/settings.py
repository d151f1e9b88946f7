"""The settings of a connection: a URL that names the server or servers, and options of our own beside it.

    redis://[[user]:password@]host[:port][/database]            rediss://...               over TLS
    redis+unix://[[user]:password@]/path/to/socket[?database=1]
    redis+sentinel://[[user]:password@]host[:port],.../SERVICE[/database]                  rediss+sentinel://...
    redis+cluster://[[user]:password@]host[:port],...                                      rediss+cluster://...

Options may also stand in the URL, as `?prefix=orders:&timeout=3`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError
from hesape_redis.keys import DEFAULT_PREFIX

_PREFIX: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}:?")
_SCHEME: Final = re.compile(r"(redis|rediss|valkey|valkeys)(?:\+(unix|sentinel|cluster))?")
_PORTS: Final = {"sentinel": 26379}
_OPTIONS: Final[Mapping[str, tuple[type, ...]]] = {
    "prefix": (str,),
    "migrate": (str,),
    "timeout": (int, float),
    "connect_timeout": (int, float),
    "pool_size": (int,),
    "database": (int,),
    "tls_ca": (str,),
    "tls_cert": (str,),
    "tls_key": (str,),
    "tls_verify": (bool,),
    "sentinel_username": (str,),
    "sentinel_password": (str,),
    "client": (object,),
}


def _positive(instance: Settings, attribute: attrs.Attribute[Any], value: float) -> None:
    if value <= 0:
        message = f"{attribute.name} {value!r}: expected more than 0"
        raise ConfigError(message)


@attrs.frozen(kw_only=True)
class Settings:
    """How one connection is reached and used. Durations are seconds."""

    kind: Literal["single", "unix", "sentinel", "cluster"] = "single"
    hosts: tuple[tuple[str, int], ...] = ()
    """The server, or the sentinels, or some nodes of a cluster."""
    service: str = ""
    """What the sentinels call the master; the path of a Unix socket."""
    tls: bool = False
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    prefix: str = DEFAULT_PREFIX
    """What keys and channels begin with. Connections of different prefixes are different stores."""
    migrate: str = "auto"
    """Taken for the sake of one configuration for all stores: Redis has no schema."""
    timeout: float = attrs.field(default=10.0, validator=_positive)
    """How long an answer may take before its outcome counts as unknown."""
    connect_timeout: float = attrs.field(default=5.0, validator=_positive)
    pool_size: int = attrs.field(default=100, validator=_positive)
    """The most connections of one process."""
    database: int = 0
    tls_ca: str | None = None
    """A file of certificates that sign the server's; the system's when not given."""
    tls_cert: str | None = None
    tls_key: str | None = attrs.field(default=None, repr=False)
    tls_verify: bool = True
    sentinel_username: str | None = None
    sentinel_password: str | None = attrs.field(default=None, repr=False)
    client: Any = attrs.field(default=None, repr=False)
    """A ready-made `redis.Redis` or `redis.RedisCluster`, used instead of the URL, with its connections borrowed."""

    def __attrs_post_init__(self) -> None:
        """Refuse what would end up in keys, or nowhere."""
        if not _PREFIX.fullmatch(self.prefix):
            message = (
                f"prefix {self.prefix!r}: expected 1 to 40 of A-Z, a-z, 0-9 and '_.-', and a ':' at the end or not"
            )
            raise ConfigError(message)
        if self.migrate not in {"auto", "manual"}:
            message = f"migrate {self.migrate!r}: expected 'auto' or 'manual'"
            raise ConfigError(message)
        if self.kind == "cluster" and self.database:
            message = f"database {self.database}: a cluster has database 0 alone; separate stores by prefix"
            raise ConfigError(message)

    @classmethod
    def read(cls, settings: ConnectionSettings) -> Self:
        """Read a connection's settings; `ConfigError` names what isn't understood, never the password."""
        try:
            place, query = ({}, {}) if "client" in settings.options else _place(settings.url)
            options = {**query, **settings.options}
            for name, value in options.items():
                _check_option(name, value)
            return cls(**{**place, **options})
        except ConfigError as error:
            raise ConfigError(f"connection {settings.name!r}: {error}") from None


def _check_option(name: str, value: object) -> None:
    if name not in _OPTIONS:
        message = f"unknown option {name!r}; the redis driver has {', '.join(sorted(_OPTIONS))}"
        raise ConfigError(message)
    expected = _OPTIONS[name]
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected and name != "client"):
        kinds = " or ".join(kind.__name__ for kind in expected)
        raise ConfigError(f"option {name!r}: expected {kinds}, found {type(value).__name__}")


def _place(url: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where a URL leads, and the options in it."""
    scheme, mark, rest = url.partition("://")
    found = _SCHEME.fullmatch(scheme.lower())
    if not found or not mark:
        raise ConfigError("url: expected redis://, rediss://, redis+unix://, redis+sentinel:// or redis+cluster://")
    kind = found.group(2) or "single"
    # Several hosts with ports aren't one that urlsplit takes for valid, so the authority is read by hand.
    authority, slash, path = rest.partition("?")[0].partition("/")
    query = urlsplit(f"//x?{rest.partition('?')[2]}").query
    user, at, hosts = authority.rpartition("@")
    if "@" in user or "#" in rest:
        raise ConfigError("url: percent-encode '@', '/', '?' and '#' in the user and the password")
    name, _, password = user.partition(":")
    place: dict[str, Any] = {"kind": kind, "tls": found.group(1) in {"rediss", "valkeys"}}
    if at:
        place |= {"username": unquote(name) or None, "password": unquote(password) or None}
    if kind == "unix":
        place["service"] = unquote(slash + path)
    else:
        place["hosts"] = tuple(_host(host, _PORTS.get(kind, 6379)) for host in hosts.split(","))
        _read_path(place, path)
    return place, {key: _typed(key, value) for key, value in parse_qsl(query, keep_blank_values=True)}


def _host(text: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::([0-9]{1,5}))?", text)
    if not found:
        raise ConfigError("url: expected host:port, several of them with commas between")
    return found.group(1).strip("[]") or "localhost", int(found.group(2) or port)


def _read_path(place: dict[str, Any], path: str) -> None:
    parts = [unquote(part) for part in path.strip("/").split("/") if part]
    if place["kind"] == "sentinel":
        if not parts:
            raise ConfigError(
                "url: expected the service's name after the sentinels, as in redis+sentinel://a,b/mymaster"
            )
        place["service"] = parts.pop(0)
    if parts:
        if len(parts) > 1 or not parts[0].isdecimal():
            raise ConfigError("url: expected the number of a database as its path")
        place["database"] = int(parts[0])
    if place["kind"] == "single" and len(place["hosts"]) > 1:
        raise ConfigError("url: several hosts: use redis+sentinel:// or redis+cluster://")


def _typed(name: str, text: str) -> object:
    """An option's value from a URL, as a file would have it."""
    kinds = _OPTIONS.get(name, (str,))
    if bool in kinds and text.lower() in {"true", "false", "yes", "no", "1", "0"}:
        return text.lower() in {"true", "yes", "1"}
    if int in kinds and re.fullmatch(r"[0-9]+", text):
        return int(text)
    if float in kinds and re.fullmatch(r"[0-9]*\.[0-9]+", text):
        return float(text)
    return text
