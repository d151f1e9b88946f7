"""A server of the tests' own, a database for each test, and a client of plain SQL, as Ruby and Go programs are."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

from hesape_postgres import testing
from hesape_postgres.que import QueClient, migrate

_NUMBERS = itertools.count(1)
_HELD = """
select count(*) from pg_locks
 where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
"""


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server that these tests may fill."""
    with testing.server() as running:
        yield running.url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    """The address of a database for one test, with an empty Que table."""
    name = f"que_test_{next(_NUMBERS)}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        address = make_conninfo(server, dbname=name)
        with psycopg.connect(address) as fresh:
            migrate(fresh)
        yield address
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def pool(url: str) -> Iterator[ConnectionPool[Any]]:
    """Four connections as a pool makes them: not in autocommit."""
    with ConnectionPool(url, min_size=0, max_size=4, timeout=20) as opened:
        yield opened


@pytest.fixture
def client(pool: ConnectionPool[Any]) -> QueClient:
    return QueClient(pool)


@pytest.fixture
def conn(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A look from outside, in autocommit."""
    with psycopg.connect(url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def plain(url: str) -> Iterator[Any]:
    with Plain(url) as opened:
        yield opened


@pytest.fixture
def held(conn: psycopg.Connection[Any]) -> Callable[[], int]:
    """How many advisory locks there are in this database."""
    return lambda: conn.execute(_HELD).fetchall()[0][0]


@pytest.fixture
def idle(pool: ConnectionPool[Any]) -> Callable[[], bool]:
    """Whether every connection of the pool is back."""

    def all_back() -> bool:
        found = pool.get_stats()
        return found["pool_available"] == found["pool_size"]

    return all_back


@pytest.fixture
def until() -> Callable[..., None]:
    """Poll a condition, ten seconds at most."""

    def wait(condition: Callable[[], Any], within_s: float = 10.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "it didn't come true in time"
            time.sleep(0.005)

    return wait


class Plain:
    """One session of a program that isn't this package, with statements for what Que's description says."""

    KEY = "queue = %s and priority = %s and run_at = %s::timestamptz and job_id = %s"

    def __init__(self, url: str) -> None:
        self.conn = psycopg.connect(url, autocommit=True)
        self.pid = self.conn.info.backend_pid

    def enqueue(self, job_class: str, args: str | None = None, **columns: Any) -> tuple[Any, ...]:
        """The whole new row; `None` is the default."""
        found = self.conn.execute(
            "insert into que_jobs (queue, priority, run_at, job_class, args) values (coalesce(%s::text, ''),"
            " coalesce(%s::smallint, 100), coalesce(%s::timestamptz, now()), %s, coalesce(%s::json, '[]'))"
            " returning queue, priority, run_at::text, job_id, job_class, args::text, error_count, last_error",
            (columns.get("queue"), columns.get("priority"), columns.get("run_at"), job_class, args),
        )
        return found.fetchall()[0]

    def lock(self, queue: str = "") -> tuple[Any, ...] | None:
        """Go through the due keys in order until one can be locked, and look whether its row is still there."""
        due = self.conn.execute(
            "select queue, priority, run_at::text, job_id, job_class, args::text, error_count from que_jobs"
            " where queue = %s and run_at <= now() order by priority, run_at, job_id",
            (queue,),
        ).fetchall()
        for row in due:
            if self.conn.execute("select pg_try_advisory_lock(%s)", (row[3],)).fetchall()[0][0]:
                if self.conn.execute(f"select from que_jobs where {self.KEY}", row[:4]).rowcount:
                    return row
                self.unlock(row)
        return None

    def destroy(self, row: tuple[Any, ...]) -> int:
        return self.conn.execute(f"delete from que_jobs where {self.KEY}", row[:4]).rowcount

    def set_error(self, row: tuple[Any, ...], delay_s: int, text: str) -> int:
        statement = (
            "update que_jobs set error_count = error_count + 1, run_at = now() + %s * interval '1 s', last_error = %s"
        )
        return self.conn.execute(f"{statement} where {self.KEY}", (delay_s, text, *row[:4])).rowcount

    def unlock(self, row: tuple[Any, ...]) -> bool:
        return bool(self.conn.execute("select pg_advisory_unlock(%s)", (row[3],)).fetchall()[0][0])

    def rows(self) -> list[tuple[Any, ...]]:
        """Every row of the table in key order, with times and args as the server prints them."""
        return self.conn.execute(
            "select queue, priority, run_at::text, job_id, job_class, args::text, error_count, last_error"
            " from que_jobs order by queue, priority, run_at, job_id"
        ).fetchall()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(psycopg.Error):
            self.conn.close()
