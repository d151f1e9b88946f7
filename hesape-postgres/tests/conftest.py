from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from hesape.config import ConnectionSettings
from hesape.queue import Queue
from hesape_postgres.driver import PostgresDriver, open_driver
from hesape_postgres.testing import PrivatePostgres

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """A server that every test may use and none stops."""
    with PrivatePostgres() as server:
        yield server


@pytest.fixture
def schema(postgres: PrivatePostgres) -> Iterator[str]:
    name = f"s{next(_numbers)}"
    yield name
    with psycopg.connect(postgres.url, autocommit=True) as conn:
        conn.execute(f"drop schema if exists {name} cascade".encode())


@pytest.fixture
def opened(postgres: PrivatePostgres, schema: str) -> Iterator[Callable[..., PostgresDriver]]:
    """Opens drivers on the test's own schema; they are closed after it."""
    with contextlib.ExitStack() as stack:

        def open_one(*, url: str = "", **options: Any) -> PostgresDriver:
            settings = ConnectionSettings(
                name="main", driver="postgres", url=url or postgres.url, options={"schema": schema, **options}
            )
            driver = open_driver(settings)
            stack.callback(driver.close)
            return driver

        yield open_one


@pytest.fixture
def driver(opened: Callable[..., PostgresDriver]) -> PostgresDriver:
    return opened()


@pytest.fixture
def queue(driver: PostgresDriver) -> Queue:
    return Queue(driver, name="main")


@pytest.fixture
def database(postgres: PrivatePostgres) -> Iterator[Callable[..., str]]:
    """Makes databases with clauses of one's own, and says their addresses."""
    with psycopg.connect(postgres.url, autocommit=True) as conn, contextlib.ExitStack() as stack:

        def make(clauses: str = "") -> str:
            name = f"d{next(_numbers)}"
            conn.execute(f"create database {name} template template0 {clauses}".encode())
            stack.callback(lambda: conn.execute(f"drop database {name} with (force)".encode()))
            return f"{postgres.url.rpartition('/')[0]}/{name}"

        yield make


@pytest.fixture
def db(postgres: PrivatePostgres, schema: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """The database without the driver; unqualified tables are those of the test's schema."""
    with psycopg.connect(postgres.url, autocommit=True, options=f"-c search_path={schema}") as conn:
        yield conn
