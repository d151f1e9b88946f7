from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from hesape.errors import SchemaError, StoreRefusedError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_postgres import schema as schemas
from hesape_postgres.driver import PostgresDriver

GRANT = system_grant("run", "acme")
Db = psycopg.Connection[tuple[Any, ...]]


def test_two_processes_that_start_together_migrate_once(opened: Callable[..., PostgresDriver], db: Db) -> None:
    drivers = [opened() for _ in range(6)]
    barrier, applied = threading.Barrier(6), []

    def start(driver: PostgresDriver) -> None:
        barrier.wait()
        applied.extend(driver.migrate())

    threads = [threading.Thread(target=start, args=(driver,)) for driver in drivers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert applied == [migration.number for migration in drivers[0].migrations()]
    assert {driver._link.find() for driver in drivers} == {drivers[0]._link.store_id}
    assert drivers[0].schema_version() == schemas.LATEST


def test_the_printed_steps_make_the_same_tables(opened: Callable[..., PostgresDriver], db: Db) -> None:
    by_driver, by_hand = opened(prefix="one_"), opened(prefix="two_", migrate="manual")
    by_driver.migrate()
    for migration in by_hand.migrations():
        db.execute(migration.sql.encode())
    assert by_hand.schema_version() == by_driver.schema_version() == schemas.LATEST

    def columns(prefix: str) -> list[tuple[Any, ...]]:
        return db.execute(
            "select substr(table_name, 4), column_name, data_type from information_schema.columns"
            " where table_schema = current_schema() and table_name like %s order by 1, 2",
            (f"{prefix}%",),
        ).fetchall()

    assert columns("one") == columns("two")
    assert len(columns("one")) > 30
    Queue(by_hand).push(GRANT, Job.new(GRANT, "n"))
    assert by_hand.migrate() == []


def test_manual_names_the_command_and_makes_nothing(opened: Callable[..., PostgresDriver], db: Db) -> None:
    driver = opened(migrate="manual")
    with pytest.raises(SchemaError, match="hesape migrate"):
        Queue(driver).counts()
    assert driver.schema_version() == 0
    assert db.execute("select to_regnamespace(current_schema())").fetchone() == (None,)
    assert driver.migrate() == [1]
    assert Queue(driver).counts().size == 0


def test_a_newer_schema_works_unless_it_says_otherwise(driver: PostgresDriver, opened: Any, db: Db) -> None:
    driver.migrate()
    db.execute("update hesape_meta set version = 7")
    older = opened()
    Queue(older).push(GRANT, Job.new(GRANT, "n"))
    assert older.migrate() == []
    db.execute("update hesape_meta set compatible = 7")
    with pytest.raises(SchemaError, match="newer hesape"):
        Queue(opened()).counts()


def test_tables_that_somebody_removed_are_an_error_and_then_made_again(
    queue: Queue, driver: PostgresDriver, db: Db
) -> None:
    queue.push(GRANT, Job.new(GRANT, "n"))
    db.execute("drop table hesape_jobs, hesape_meta, hesape_entries, hesape_workers, hesape_paused")
    with pytest.raises(SchemaError):
        queue.counts()
    assert queue.counts().size == 0


def test_a_role_that_may_not_make_tables_is_told_so(postgres: Any, opened: Any, schema: str, db: Db) -> None:
    db.execute("create role nobody_much login")
    try:
        driver = opened(url=postgres.url.replace("//postgres@", "//nobody_much@"))
        with pytest.raises(StoreRefusedError, match="permission denied"):
            Queue(driver).counts()
    finally:
        db.execute("drop role nobody_much")


def test_prefixes_are_separate_stores(opened: Callable[..., PostgresDriver]) -> None:
    one, two = Queue(opened(prefix="one_")), Queue(opened(prefix="two_"))
    one.push(GRANT, Job.new(GRANT, "n"))
    assert (one.counts().size, two.counts().size) == (1, 0)
    assert one.driver.schema_version() == two.driver.schema_version()
