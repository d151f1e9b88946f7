from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import hesape
from hesape.config import ConnectionSettings
from hesape.errors import SchemaError, StoreRefusedError
from hesape.grants import Grant
from hesape.queue import Queue
from hesape_mysql import schema
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.testing import MySQLHarness


def migrate(settings: ConnectionSettings, answers: multiprocessing.SimpleQueue[list[int]]) -> None:
    answers.put(MySQLDriver.from_settings(settings).migrate())


def test_processes_that_start_together_apply_each_step_once(settings: ConnectionSettings, driver: MySQLDriver) -> None:
    context = multiprocessing.get_context("spawn")
    answers: multiprocessing.SimpleQueue[list[int]] = context.SimpleQueue()
    children = [context.Process(target=migrate, args=(settings, answers)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    applied = [answers.get() for _ in children]
    assert sorted(applied) == [[], [], list(range(1, schema.LATEST + 1))]
    assert driver.schema_version() == schema.LATEST


def test_the_first_use_migrates(driver: MySQLDriver) -> None:
    assert driver.schema_version() == 0
    assert driver.queues() == []
    assert driver.schema_version() == schema.LATEST
    assert driver.migrate() == []


def test_without_leave_to_migrate_the_error_names_the_command(open_driver: Callable[..., MySQLDriver]) -> None:
    driver = open_driver(migrate="manual")
    with pytest.raises(SchemaError, match="at step 0, this version needs 2; run `hesape migrate`"):
        driver.counts("default")
    driver.migrate()
    assert driver.counts("default").size == 0


def test_what_is_printed_can_be_run_by_hand_even_twice(driver: MySQLDriver, connect: Callable[..., Any]) -> None:
    conn = connect(autocommit=True)
    for _ in range(2):
        for step in driver.migrations():
            with conn.cursor() as cursor:
                cursor.execute(step.sql)
                while cursor.nextset():
                    pass
    assert [step.number for step in driver.migrations()] == list(range(1, schema.LATEST + 1))
    assert driver.migrate() == []
    assert driver.queues() == []


def test_a_step_that_was_cut_in_its_middle_is_finished(driver: MySQLDriver, connect: Callable[..., Any]) -> None:
    first = driver.migrations()[0].sql.split(";\n")[0]
    with connect(autocommit=True).cursor() as cursor:
        cursor.execute(first)
    assert driver.schema_version() == 0
    assert driver.migrate() == list(range(1, schema.LATEST + 1))


@pytest.fixture(params=["latin1", "utf8mb3", "utf8mb4"])
def lax_database(request: pytest.FixtureRequest, harness: MySQLHarness) -> Iterator[str]:
    name = f"test_{request.param}"
    with contextlib.closing(harness.connect(autocommit=True)) as conn, conn.cursor() as cursor:
        cursor.execute(f"create database {name} character set {request.param}")
        yield name
        cursor.execute(f"drop database {name}")


def test_a_databases_character_set_does_not_matter(harness: MySQLHarness, lax_database: str, grant: Grant) -> None:
    given = harness.settings("any")
    settings = ConnectionSettings(name="main", driver="mysql", url=given.url, options={"database": lax_database})
    with Queue(MySQLDriver.from_settings(settings)) as queue:
        for name in ("Reports", "reports"):
            queue.push(grant, hesape.Job.new(grant, "näme \N{PILE OF POO}", {"emoji": "\N{PILE OF POO}"}, queue=name))
        [job] = queue.pop("reports", n=5)
        assert (job.name, job.decode(), job.queue) == ("näme \N{PILE OF POO}", {"emoji": "\N{PILE OF POO}"}, "reports")
        job.fail("böse \N{PILE OF POO}" * 2_000_000)
        [failed] = queue.operator().failed()
        assert (failed.last_error or "").startswith("böse \N{PILE OF POO}")
        assert queue.counts("Reports").pending == 1


def test_a_missing_database_is_refused_by_name(harness: MySQLHarness) -> None:
    settings = ConnectionSettings(
        name="main", driver="mysql", url=harness.settings("any").url, options={"database": "test_nowhere"}
    )
    with pytest.raises(StoreRefusedError, match="the database doesn't exist"):
        MySQLDriver.from_settings(settings).queues()


def test_every_table_is_transactional_and_compares_exactly(
    driver: MySQLDriver, connect: Callable[..., Any], namespace: str
) -> None:
    driver.migrate()
    with connect().cursor() as cursor:
        cursor.execute(
            "select engine, table_collation from information_schema.tables"
            " where table_schema = database() and table_name like %s",
            (f"{namespace}\\_%",),
        )
        assert set(cursor.fetchall()) == {("InnoDB", "utf8mb4_bin")}


def test_a_newer_schema_serves_an_older_worker(
    driver: MySQLDriver, connect: Callable[..., Any], namespace: str, grant: Grant
) -> None:
    driver.migrate()
    with connect(autocommit=True).cursor() as cursor:
        cursor.execute(f"update {namespace}_meta set value = '99' where name = 'schema'")
        cursor.execute(f"alter table {namespace}_jobs add column colour int not null default 0")
    queue = Queue(driver)
    queue.push(grant, hesape.Job.new(grant, "n"))
    assert len(queue.pop()) == 1
