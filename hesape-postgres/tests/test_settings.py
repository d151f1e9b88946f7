from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.driver import Capability
from hesape.errors import ConfigError, StoreUnavailableError
from hesape.queue import Queue
from hesape_postgres.driver import PoolerDriver, PostgresDriver, open_driver
from hesape_postgres.plugin import SPEC, hesape_register_driver

SECRET = "s3cr3t"


def settings(url: str = "postgresql://u@127.0.0.1:1/db", **options: Any) -> ConnectionSettings:
    return ConnectionSettings(name="orders", driver="postgres", url=url, options=options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shema": "x"}, "unknown option 'shema'; the postgres driver has .*schema"),
        ({"prefix": "a-b"}, "prefix 'a-b'"),
        ({"prefix": "a; drop table x"}, "prefix"),
        ({"schema": 'a"b'}, "schema"),
        ({"schema": ""}, "schema"),
        ({"migrate": "never"}, "'auto' or 'manual'"),
        ({"pooler": "yes"}, "expected bool, found str"),
        ({"pool_size": True}, "expected int, found bool"),
        ({"pool_size": 0}, "more than 0"),
        ({"lock_timeout": -1}, "more than 0"),
    ],
)
def test_an_option_that_isnt_understood_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_driver(settings(**options))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@h:1/db?nonsense=1",
        f"postgresql://u:p@{SECRET}@h/db",
        f"postgresql://u:p/{SECRET}@h/db",
        f"postgresql://u:{SECRET}/x@h/db",
        f"host=h password={SECRET} nonsense",
        f"postgresql://u:{SECRET}@h:port/db",
        f"{SECRET}",
    ],
)
def test_an_address_that_isnt_understood_isnt_shown(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_driver(settings(url))
    assert SECRET not in _everything(caught.value)


def _everything(error: BaseException) -> str:
    shown = ""
    seen: BaseException | None = error
    while seen is not None:
        shown += f"{seen!r} {seen} {vars(seen)}"
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return shown


def test_a_server_that_cant_be_reached_is_unavailable_and_its_password_unsaid(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    driver = open_driver(settings(f"postgresql://u:{SECRET}@127.0.0.1:1/db"))
    with pytest.raises(StoreUnavailableError) as caught:
        driver.now()
    with pytest.raises(StoreUnavailableError):
        driver.beat("w", 1, 1)
    assert not driver.wait(["default"], 0.01)
    driver.close()
    assert caught.value.__cause__ is not None
    assert "orders" in str(caught.value)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreUnavailableError)  # noqa: S301 - our own bytes
    for shown in (
        _everything(caught.value),
        caplog.text,
        repr(driver),
        repr(driver._link.options),
        repr(Queue(driver)),
    ):
        assert SECRET not in shown


def test_a_wrong_password_is_unavailable_and_unsaid(postgres: Any) -> None:
    driver = open_driver(settings(f"postgresql://nobody:{SECRET}@127.0.0.1:{postgres.port}/postgres"))
    with pytest.raises(StoreUnavailableError, match='role "nobody"') as caught:
        driver.now()
    assert SECRET not in _everything(caught.value)


def test_the_spec_says_what_each_kind_claims() -> None:
    assert hesape_register_driver() is SPEC
    assert SPEC.open(settings(), None).__class__ is PostgresDriver  # type: ignore[arg-type]
    assert SPEC.capabilities == set(Capability)
    pooled = open_driver(settings(pooler=True))
    assert type(pooled) is PoolerDriver
    assert pooled.spec.capabilities == {Capability.TRANSACTIONS}


def test_options_of_the_url_are_kept(postgres: Any) -> None:
    url = f"{postgres.url}?options=-c%20work_mem%3D77kB&application_name=shop"
    driver = open_driver(settings(url))
    with driver._link.own(found=False) as own:
        assert own.rows(b"show work_mem") == [("77kB",)]
        assert own.rows(b"show application_name") == [("shop",)]
        assert own.rows(b"show plan_cache_mode") == [("force_generic_plan",)]
    driver.close()
