from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymysql.constants import CLIENT

import hesape
from hesape.config import ConnectionSettings
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.testing import MySQLHarness

_numbers = itertools.count()


@pytest.fixture(scope="session")
def harness() -> Iterator[MySQLHarness]:
    harness = MySQLHarness()
    try:
        harness.start()
        yield harness
    finally:
        harness.stop()


@pytest.fixture
def namespace(harness: MySQLHarness) -> Iterator[str]:
    name = f"t{next(_numbers)}"
    yield name
    harness.drop(name)


@pytest.fixture
def settings(harness: MySQLHarness, namespace: str) -> ConnectionSettings:
    return harness.settings(namespace)


@pytest.fixture
def open_driver(harness: MySQLHarness, namespace: str) -> Iterator[Callable[..., MySQLDriver]]:
    """Opens a driver on the test's own tables, with options, and closes it."""
    with contextlib.ExitStack() as stack:

        def open_one(**options: object) -> MySQLDriver:
            given = harness.settings(namespace)
            settings = ConnectionSettings(
                name="main", driver="mysql", url=given.url, options={**given.options, **options}
            )
            driver = MySQLDriver.from_settings(settings)
            stack.callback(driver.close)
            return driver

        yield open_one


@pytest.fixture
def driver(open_driver: Callable[..., MySQLDriver]) -> MySQLDriver:
    return open_driver()


@pytest.fixture
def queue(driver: MySQLDriver) -> Queue:
    return Queue(driver)


@pytest.fixture
def grant() -> Grant:
    return hesape.system_grant("invoice.send", "acme")


@pytest.fixture
def connect(harness: MySQLHarness) -> Iterator[Callable[..., Any]]:
    """Opens a connection as an application has it, and closes it."""
    with contextlib.ExitStack() as stack:

        def connect_one(**options: Any) -> Any:
            return stack.enter_context(
                contextlib.closing(harness.connect(**{"client_flag": CLIENT.MULTI_STATEMENTS, **options}))
            )

        yield connect_one
