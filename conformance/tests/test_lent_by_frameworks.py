"""Transactions of SQLAlchemy and Django, lent to every store that takes `tx=`: jobs are there exactly when rows are."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import urlsplit

import attrs
import django  # type: ignore[import-untyped]
import pymysql
import pytest
import sqlalchemy
from django.conf import settings  # type: ignore[import-untyped]
from django.db import connections, transaction  # type: ignore[import-untyped]
from django.utils.connection import ConnectionProxy  # type: ignore[import-untyped]
from sqlalchemy.orm import Session

import hesape
from hesape.errors import TransactionRefusedError, UnsupportedError
from hesape_mysql.testing import PrivateMariaDB
from hesape_postgres.testing import PrivatePostgres

STORES = ("sqlite", "postgres", "mysql")
DIALECTS = {"sqlite": "sqlite", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
ENGINES = {"sqlite": "sqlite3", "postgres": "postgresql", "mysql": "mysql"}
GRANT = hesape.system_grant("invoice.send", "acme")


class ChangedMyMindError(Exception):
    """What rolls a transaction back."""


@attrs.frozen
class Shop:
    """A store with the application's own table beside the jobs."""

    name: str
    url: str
    queue: hesape.Queue
    engine: sqlalchemy.Engine

    def begin(self, library: str) -> AbstractContextManager[tuple[Any, Callable[[str], object]]]:
        """A transaction of a library: what is lent, and what runs a statement in it. It commits unless it raises."""
        return {"core": self._core, "session": self._session, "django": self._django}[library]()

    @contextlib.contextmanager
    def _core(self) -> Iterator[tuple[Any, Callable[[str], object]]]:
        with self.engine.begin() as conn:
            yield conn, lambda statement: conn.execute(sqlalchemy.text(statement))

    @contextlib.contextmanager
    def _session(self) -> Iterator[tuple[Any, Callable[[str], object]]]:
        with Session(self.engine) as session, session.begin():
            yield session, lambda statement: session.execute(sqlalchemy.text(statement))

    @contextlib.contextmanager
    def _django(self) -> Iterator[tuple[Any, Callable[[str], object]]]:
        with transaction.atomic(using=self.name), connections[self.name].cursor() as cursor:
            yield self.django_connection, cursor.execute

    @property
    def django_connection(self) -> Any:
        """As `from django.db import connection` gives it."""
        return ConnectionProxy(connections, self.name)

    def there(self) -> tuple[list[int], int]:
        """What a reader outside sees: the application's rows, and how many jobs."""
        with self.engine.connect() as conn:
            rows = conn.execute(sqlalchemy.text("SELECT id FROM invoices ORDER BY id")).scalars().all()
        return list(rows), self.queue.counts().size


def job(number: int) -> hesape.Job:
    return hesape.Job.new(GRANT, "invoice.send", {"number": number})


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with PrivatePostgres() as postgres, PrivateMariaDB() as mariadb:
        file = tmp_path_factory.mktemp("shop") / "shop.db"
        yield {"sqlite": f"sqlite:///{file}", "postgres": postgres.url, "mysql": mariadb.url}


@pytest.fixture(scope="module")
def opened(urls: dict[str, str]) -> Iterator[None]:
    """Django's own connections to the three; to MariaDB over PyMySQL, as its documentation says."""
    pymysql.install_as_MySQLdb()
    settings.configure(DATABASES={"default": {}, **{name: database(name, urls[name]) for name in STORES}})
    django.setup()
    yield
    connections.close_all()
    for name in [name for name in sys.modules if name.partition(".")[0] in {"MySQLdb", "_mysql"}]:
        del sys.modules[name]
        _, _, part = name.partition(".")
        if part in vars(pymysql):  # its import laid a second one in the place of the first
            setattr(pymysql, part, sys.modules[f"pymysql.{part}"])


def database(store: str, url: str) -> dict[str, object]:
    parts = urlsplit(url)
    name = parts.path[1:]
    return {
        "ENGINE": f"django.db.backends.{ENGINES[store]}",
        "NAME": name,
        "USER": parts.username or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
    }


@pytest.fixture(params=STORES)
def shop(request: pytest.FixtureRequest, urls: dict[str, str], opened: None) -> Iterator[Shop]:
    store, url = request.param, urls[request.param]
    engine = sqlalchemy.create_engine(url.replace(url.partition(":")[0], DIALECTS[store], 1))
    with hesape.connect(url) as queue, contextlib.closing(connections[store]), engine.connect() as conn:
        queue.counts()
        conn.execute(sqlalchemy.text("CREATE TABLE invoices (id INTEGER PRIMARY KEY)"))
        conn.commit()
        yield Shop(store, url, queue, engine)
        conn.execute(sqlalchemy.text("DROP TABLE invoices"))
        conn.commit()
        queue.operator().clear("default")
    engine.dispose()


@pytest.mark.parametrize("library", ["core", "session", "django"])
def test_a_commit_brings_rows_and_jobs_with_the_ids_and_in_the_order_of_the_push(shop: Shop, library: str) -> None:
    with shop.begin(library) as (tx, run):
        run("INSERT INTO invoices VALUES (1)")
        pushed = [shop.queue.push(GRANT, job(1), tx=tx), *shop.queue.bulk(GRANT, [job(2), job(3)], tx=tx)]
        run("INSERT INTO invoices VALUES (2)")
        pushed.append(shop.queue.push(GRANT, job(4), tx=tx))
        assert shop.there() == ([], 0)
    assert shop.there() == ([1, 2], 4)
    popped = shop.queue.pop(n=9)
    assert [(one.id, one.decode()["number"]) for one in popped] == [
        (one.id, number) for number, one in enumerate(pushed, 1)
    ]


@pytest.mark.parametrize("library", ["core", "session", "django"])
def test_a_rollback_leaves_neither(shop: Shop, library: str) -> None:
    with contextlib.suppress(ChangedMyMindError), shop.begin(library) as (tx, run):
        run("INSERT INTO invoices VALUES (1)")
        shop.queue.push(GRANT, job(1), tx=tx)
        shop.queue.bulk(GRANT, [job(2), job(3)], tx=tx)
        raise ChangedMyMindError
    assert shop.there() == ([], 0)


@pytest.mark.parametrize("library", ["core", "session", "django"])
def test_a_jobs_end_is_part_of_the_transaction(shop: Shop, library: str) -> None:
    shop.queue.push(GRANT, job(1))
    [popped] = shop.queue.pop(lease=60)
    with shop.begin(library) as (tx, run):
        run("INSERT INTO invoices VALUES (1)")
        popped.delete(tx=tx)
        assert shop.there() == ([], 1)
    assert shop.there() == ([1], 0)


def test_an_inner_atomic_that_is_rolled_back_takes_its_jobs_with_it(shop: Shop) -> None:
    with shop.begin("django") as (tx, run):
        kept = shop.queue.push(GRANT, job(1), tx=tx)
        with contextlib.suppress(ChangedMyMindError), transaction.atomic(using=shop.name):
            run("INSERT INTO invoices VALUES (2)")
            shop.queue.push(GRANT, job(2), tx=tx)
            raise ChangedMyMindError
        run("INSERT INTO invoices VALUES (3)")
    assert shop.there() == ([3], 1)
    assert [one.id for one in shop.queue.pop(n=9)] == [kept.id]


def test_a_connection_by_its_alias_and_what_is_underneath_are_the_same(shop: Shop) -> None:
    with transaction.atomic(using=shop.name):
        wrapper = connections[shop.name]
        wrapper.ensure_connection()
        first, second = (shop.queue.push(GRANT, job(1), tx=tx) for tx in (wrapper, wrapper.connection))
    assert [one.id for one in shop.queue.pop(n=9)] == [first.id, second.id]


def test_outside_of_atomic_django_is_refused_and_nothing_is_stored(shop: Shop) -> None:
    for tx in (shop.django_connection, connections[shop.name]):
        with pytest.raises(TransactionRefusedError, match=r"autocommit.*transaction\.atomic\(\)"):
            shop.queue.push(GRANT, job(1), tx=tx)
    assert shop.there() == ([], 0)


def test_a_transaction_that_django_is_going_to_roll_back_is_refused(shop: Shop) -> None:
    with transaction.atomic(using=shop.name):
        connections[shop.name].set_rollback(True)
        with pytest.raises(TransactionRefusedError, match="roll"):
            shop.queue.push(GRANT, job(1), tx=shop.django_connection)
    assert shop.there() == ([], 0)


def test_in_another_thread_djangos_connection_is_refused(shop: Shop) -> None:
    with transaction.atomic(using=shop.name), ThreadPoolExecutor(1) as thread:
        for tx, said in ((connections[shop.name], "can't be used here"), (shop.django_connection, "autocommit")):
            with pytest.raises(TransactionRefusedError, match=said):
                thread.submit(shop.queue.push, GRANT, job(1), tx=tx).result()
        thread.submit(connections.close_all).result()
    assert shop.there() == ([], 0)


def test_a_connection_to_another_database_is_refused(shop: Shop) -> None:
    other = STORES[STORES.index(shop.name) - 1]
    with transaction.atomic(using=other), pytest.raises(TransactionRefusedError, match=r"sqlite3|psycopg|PyMySQL"):
        shop.queue.push(GRANT, job(1), tx=ConnectionProxy(connections, other))
    assert shop.there() == ([], 0)


def test_what_else_django_has_is_refused_by_name(shop: Shop) -> None:
    for tx in (transaction.atomic(), connections):
        with pytest.raises(TransactionRefusedError, match=f"{type(tx).__qualname__}.*Django"):
            shop.queue.push(GRANT, job(1), tx=tx)


def test_a_store_without_transactions_refuses_djangos_too(shop: Shop) -> None:
    with hesape.connect("memory://") as queue, shop.begin("django") as (tx, _), pytest.raises(UnsupportedError):
        queue.push(GRANT, job(1), tx=tx)
