from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.errors import ConfigError, StoreUnavailableError
from hesape_redis.driver import RedisDriver
from hesape_redis.settings import Settings

SECRET = "s3cr3t"


def read(url: str, **options: Any) -> Settings:
    return Settings.read(ConnectionSettings(name="main", driver="redis", url=url, options=options))


def test_a_plain_address_has_defaults() -> None:
    found = read("redis://")
    assert (found.kind, found.hosts, found.tls, found.database) == ("single", (("localhost", 6379),), False, 0)
    assert (found.username, found.password, found.prefix) == (None, None, "hesape:")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h:7/3", {"hosts": (("h", 7),), "database": 3}),
        ("rediss://u:p%40%2F@h", {"tls": True, "username": "u", "password": "p@/", "hosts": (("h", 6379),)}),
        ("redis://:p@[::1]:7", {"username": None, "password": "p", "hosts": (("::1", 7),)}),
        ("redis+unix:///run/redis.sock?database=2", {"kind": "unix", "service": "/run/redis.sock", "database": 2}),
        (
            "redis+sentinel://:p@a,b:7/mymaster/2",
            {"kind": "sentinel", "hosts": (("a", 26379), ("b", 7)), "service": "mymaster", "database": 2},
        ),
        ("rediss+sentinel://a/m", {"kind": "sentinel", "tls": True, "service": "m"}),
        ("redis+cluster://a:1,b:2", {"kind": "cluster", "hosts": (("a", 1), ("b", 2))}),
        ("rediss+cluster://a", {"kind": "cluster", "tls": True}),
        ("redis://h?prefix=orders:&timeout=3&tls_verify=no", {"prefix": "orders:", "timeout": 3, "tls_verify": False}),
        ("redis://h?timeout=2.5", {"timeout": 2.5}),
    ],
)
def test_an_address_says_where_to_go(url: str, expected: dict[str, Any]) -> None:
    found = read(url)
    assert {name: getattr(found, name) for name in expected} == expected


def test_an_option_beats_the_address() -> None:
    assert read("redis://h?prefix=a:", prefix="b:").prefix == "b:"


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("redis://h", {"prefux": "a"}, "prefux"),
        ("redis://h?prefux=a", {}, "prefux"),
        ("redis://h", {"timeout": "fast"}, "timeout"),
        ("redis://h", {"timeout": 0}, "timeout"),
        ("redis://h", {"pool_size": True}, "pool_size"),
        ("redis://h?pool_size=many", {}, "pool_size"),
        ("redis://h", {"prefix": "a{b}"}, "prefix"),
        ("redis://h", {"prefix": ""}, "prefix"),
        ("redis://h", {"migrate": "never"}, "migrate"),
        ("redis://h/x", {}, "database"),
        ("redis://h/1/2", {}, "database"),
        ("redis://a,b", {}, "several hosts"),
        ("redis://h:port", {}, "host:port"),
        ("redis+sentinel://a", {}, "service"),
        ("redis+cluster://a/2", {}, "cluster"),
        ("redis+tin://a", {}, "redis+cluster"),
        ("postgres://a", {}, "redis://"),
        ("redis:h", {}, "redis://"),
    ],
)
def test_what_isnt_understood_is_refused_by_name(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match="connection 'main'") as caught:
        read(url, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@h:port",
        f"redis://u:{SECRET}@x@h",
        f"redis://u:{SECRET}#@h",
        f"redis://u:{SECRET}/@h",
        f"redis+sentinel://u:{SECRET}@h",
        f"redist://u:{SECRET}@h",
    ],
)
def test_a_refusal_never_shows_the_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(url)
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__!r} {caught.value.__context__!r}"
    assert SECRET not in shown


def test_neither_settings_nor_errors_show_a_secret(opened: Callable[..., RedisDriver]) -> None:
    url = f"redis://user:{SECRET}@127.0.0.1:9/0"
    options = {"sentinel_password": SECRET, "tls_key": SECRET}
    assert SECRET not in repr(read(url, **options))
    with pytest.raises(StoreUnavailableError) as caught:
        opened(url).ping()
    assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"
    assert SECRET not in repr(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 - made one line above


def test_a_wrong_password_is_told_without_it(server: Any, opened: Callable[..., RedisDriver]) -> None:
    driver = opened(server.url.replace("redis://", f"redis://nobody:{SECRET}@"))
    with pytest.raises(StoreUnavailableError, match=r"WRONGPASS|invalid username") as caught:
        driver.ping()
    assert SECRET not in str(caught.value)


def test_only_clients_of_redis_py_are_taken() -> None:
    with pytest.raises(ConfigError, match=r"redis\.Redis .* found builtins\.dict"):
        RedisDriver.of_client({})


def test_opening_connects_to_nothing(opened: Callable[..., RedisDriver]) -> None:
    for url in ("redis://127.0.0.1:9", "redis+sentinel://127.0.0.1:9/m", "redis+cluster://127.0.0.1:9"):
        driver = opened(url)
        assert driver.migrations() == []
        assert driver.migrate() == []
        assert driver.schema_version() == 0


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:9", "redis+sentinel://127.0.0.1:9/m", "redis+cluster://127.0.0.1:9"]
)
def test_where_nobody_listens_the_store_is_unavailable(url: str, opened: Callable[..., RedisDriver]) -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        opened(url).now()
    assert caught.value.__cause__ is not None


def test_loading_the_plugin_loads_no_client() -> None:
    program = "import sys, hesape_redis.plugin as p; p.hesape_register_driver(); assert 'redis' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
