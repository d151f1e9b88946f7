"""Settings, schema, files, faults (E, N4)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.drivers.sqlite import statements
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.errors import translated
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.envelope import Keys
from hesape.errors import (
    ConfigError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    TamperedError,
)
from hesape.failed import FailedJob
from hesape.grants import system_grant
from hesape.jobs import Job, received
from hesape.queue import Queue
from hesape.records import new_token

FIXTURES = Path(__file__).parent / "fixtures"
GRANT = system_grant("act", "acme")


def read(url: str = "", folder: Path = Path("/srv"), **options: object) -> SqliteSettings:
    return SqliteSettings.read(
        ConnectionSettings(name="main", driver="sqlite", url=url, options=options, folder=folder)
    )


@pytest.mark.parametrize(
    ("url", "options", "path"),
    [
        ("sqlite:///jobs.db", {}, "/srv/jobs.db"),
        ("sqlite:////var/jobs.db", {}, "/var/jobs.db"),
        ("sqlite:///sub/a%20b.db", {}, "/srv/sub/a b.db"),
        ("sqlite://", {"path": "jobs.db"}, "/srv/jobs.db"),
        ("", {"path": "/var/jobs.db"}, "/var/jobs.db"),
    ],
)
def test_the_file_is_found_in_the_url_or_the_option(url: str, options: dict[str, Any], path: str) -> None:
    assert read(url, **options).path == Path(path)


def test_options_are_read_from_the_url_and_the_table() -> None:
    found = read("sqlite:///j.db?synchronous=normal&timeout=2.5", prefix="q_", migrate="manual")
    assert (found.synchronous, found.timeout_s, found.prefix, found.manual) == ("NORMAL", 2.5, "q_", True)
    assert read("sqlite:///j.db").synchronous == "FULL"


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("sqlite:///:memory:", {}, "memory://"),
        ("", {"path": ":memory:"}, "memory://"),
        ("sqlite://jobs.db", {}, "sqlite:///relative.db"),
        ("sqlite://[::1", {}, "sqlite:///relative.db"),
        ("", {}, "expected one file"),
        ("sqlite:///a.db", {"path": "b.db"}, "expected one file"),
        ("sqlite:///a.db", {"pool": 5}, "unknown option pool"),
        ("sqlite:///a.db", {"synchronous": "off"}, "synchronous 'off'"),
        ("sqlite:///a.db", {"timeout": 0}, "timeout 0"),
        ("sqlite:///a.db", {"timeout": "soon"}, "timeout 'soon'"),
        ("sqlite:///a.db", {"timeout": True}, "timeout True"),
        ("sqlite:///a.db", {"prefix": "x; DROP"}, "prefix"),
        ("sqlite:///a.db", {"migrate": "never"}, "migrate 'never'"),
        ("", {"path": 7}, "path 7"),
        ("sqlite:///a%00b.db", {}, "NUL"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(url: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read(url, **options)


def test_the_plugin_opens_a_driver_without_touching_the_file(tmp_path: Path) -> None:
    (point,) = [point for point in entry_points(group="hesape.drivers") if point.name == "sqlite"]
    spec = point.load().hesape_register_driver()
    driver = spec.open(ConnectionSettings(name="m", driver="sqlite", url="sqlite:///j.db", folder=tmp_path), None)
    assert isinstance(driver, SqliteDriver)
    assert (driver.spec, driver.path) == (spec, tmp_path / "j.db")
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_is_not_for_everybody(sqlite_bench: Any) -> None:
    before = os.umask(0)
    try:
        sqlite_bench.push()
        sqlite_bench.driver.beat("w", 1, 1)
    finally:
        os.umask(before)
    files = list(sqlite_bench.driver.path.parent.rglob("*"))
    assert len(files) == 5
    assert [path for path in files if path.stat().st_mode & 0o007] == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "nowhere" / "jobs.db"))
    with pytest.raises(StoreRefusedError, match="nowhere of the SQLite store"):
        driver.counts("default")


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreRefusedError):
        SqliteDriver(SqliteSettings(path=tmp_path)).counts("default")


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, " * 100)
    with pytest.raises(StoreRefusedError, match="no SQLite database"):
        SqliteDriver(SqliteSettings(path=path)).counts("default")
    assert path.read_text().startswith("these are notes")


def test_a_full_store_refuses_pushes_and_can_be_drained(sqlite_bench: Any) -> None:
    kept = sqlite_bench.push()
    writer = sqlite_bench.driver._connections._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    for rows in ([sqlite_bench.row(payload=b"x" * 30_000)], [sqlite_bench.row(payload=b"x" * 9_000) for _ in range(9)]):
        with pytest.raises(StoreRefusedError, match="full"):
            sqlite_bench.store(*rows)
    lent = sqlite3.connect(sqlite_bench.driver.path)
    lent.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreRefusedError, match="full"):
        sqlite_bench.driver._store([sqlite_bench.row(payload=b"x" * 30_000)], lent)
    lent.close()
    (key,) = sqlite_bench.take()
    assert key.id == kept
    assert sqlite_bench.driver._delete([key], repeat=False, tx=None) == []
    assert sqlite_bench.counts() == (0, 0, 0, 0)


READ_ONLY = """
import os, sys
from pathlib import Path
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.errors import StoreError
from hesape.records import NewRow
if os.getuid() == 0:
    os.setuid(65534)
driver = SqliteDriver(SqliteSettings(path=Path(sys.argv[1])))
try:
    driver._store([NewRow("01890000-0000-7000-8000-000000000000", b"e", "t", "n", "q", 1, None, 0, None)], None)
except StoreError as error:
    print(error.code)
"""


def test_a_read_only_file_refuses_pushes() -> None:
    """As somebody who isn't root, whom no permission stops."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "jobs.db"
        driver = SqliteDriver(SqliteSettings(path=path))
        driver.counts("default")
        driver.close()
        path.chmod(0o444)
        found = subprocess.run([sys.executable, "-c", READ_ONLY, path], capture_output=True, text=True, check=True)
    assert found.stdout == "store-refused\n"


def test_another_programs_long_transaction_makes_the_store_busy_and_nothing_else(tmp_path: Path) -> None:
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db", timeout_s=0.1))
    assert driver.counts("default").size == 0
    outside = sqlite3.connect(driver.path, isolation_level=None)
    outside.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError) as caught:
        driver.pause("default")
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    assert driver.counts("default").size == 0
    assert driver.queues() == []
    outside.close()
    driver.pause("default")
    driver.close()


def test_another_threads_long_turn_makes_the_store_busy(tmp_path: Path) -> None:
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db", timeout_s=0.05))
    other = SqliteDriver(driver.settings)

    def take_long(_: object) -> None:
        with pytest.raises(StoreBusyError, match="threads"):
            other.pause("default")

    driver._connections.write(take_long)
    other.close()
    driver.close()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ((sqlite3.OperationalError, sqlite3.SQLITE_BUSY_SNAPSHOT), StoreBusyError),
        ((sqlite3.OperationalError, sqlite3.SQLITE_IOERR_WRITE), StoreRefusedError),
        ((sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT), StoreRefusedError),
        ((sqlite3.OperationalError, sqlite3.SQLITE_CANTOPEN), StoreUnavailableError),
        ((sqlite3.ProgrammingError, 0), StoreError),
    ],
)
def test_each_code_of_sqlite_has_its_meaning(
    error: tuple[type[sqlite3.Error], int], expected: type[StoreError]
) -> None:
    made = error[0]("as it says")
    made.sqlite_errorcode = error[1]
    found = translated(made, Path("jobs.db"))
    assert type(found) is expected
    assert "jobs.db" in str(found)
    assert "as it says" in str(found)


def test_manual_migration_asks_for_it(tmp_path: Path) -> None:
    settings = SqliteSettings(path=tmp_path / "jobs.db", manual=True)
    driver = SqliteDriver(settings)
    assert driver.schema_version() == 0
    with pytest.raises(SchemaError, match="hesape migrate"):
        driver.counts("default")
    assert driver.migrate() == [1]
    assert driver.migrate() == []
    assert driver.schema_version() == 1
    assert driver.counts("default").size == 0
    driver.close()


def test_a_newer_schema_is_refused(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    sqlite_bench.driver.close()
    with sqlite3.connect(sqlite_bench.driver.path) as other:
        other.execute("UPDATE hesape_meta SET value = '99' WHERE key = 'schema'")
    other.close()
    with pytest.raises(SchemaError, match="schema 99"):
        sqlite_bench.counts()
    with pytest.raises(SchemaError, match="schema 99"):
        sqlite_bench.driver.migrate()


def test_the_migrations_as_shown_make_the_same_tables(sqlite_bench: Any) -> None:
    sqlite_bench.counts()
    shown = sqlite3.connect(":memory:")
    shown.executescript("".join(step.sql for step in sqlite_bench.driver.migrations()))
    made = sqlite3.connect(sqlite_bench.driver.path)
    query = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert [row[:2] for row in shown.execute(query)] == [row[:2] for row in made.execute(query)]
    shown.close()
    made.close()


def test_two_prefixes_are_two_stores_in_one_file(tmp_path: Path) -> None:
    first = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db"))
    second = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db", prefix="other_"))
    Queue(first).push(GRANT, Job.new(GRANT, "work"))
    assert (first.counts("default").size, second.counts("default").size) == (1, 0)
    names = [step.sql for step in second.migrations()]
    assert not any("hesape_" in text for text in names)
    first.close()
    second.close()


def test_each_statement_of_a_claim_goes_through_an_index_without_sorting(sqlite_bench: Any) -> None:
    sqlite_bench.push()
    look = sqlite3.connect(sqlite_bench.driver.path)
    claim = [statements.LOOK, statements.CLAIMED, statements.PROMOTE_DUE, statements.PROMOTE_LAPSED, statements.CLAIM]
    others = [statements.DELETE, statements.RELEASE, statements.FAIL, statements.RENEW, statements.OLDEST]
    pages = [
        statements.failed_page(tenant=tenant, queue=queue, after=after)
        for tenant in (False, True)
        for queue in (False, True)
        for after in (False, True)
    ]
    for statement in [*claim, *others, *pages]:
        values: Any = {"of": "", "now": 0} if ":now" in statement else [None] * statement.count("?")
        steps = [row[3] for row in look.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        assert steps
        scans = [step for step in steps if step.startswith("SCAN hesape_jobs") and "INDEX" not in step]
        assert scans == [], statement
        assert not any("TEMP B-TREE" in step for step in steps), (statement, steps)
    look.close()


@contextmanager
def raw(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    with connection:
        yield connection
    connection.close()


def test_a_forged_text_that_is_no_utf8_stops_nobody(sqlite_bench: Any) -> None:
    forged, honest = sqlite_bench.push(), sqlite_bench.push()
    with raw(sqlite_bench.driver.path) as connection:
        connection.execute("UPDATE hesape_jobs SET tenant = CAST(x'ff61' AS TEXT) WHERE seq = 1")
    rows = sqlite_bench.claim().rows
    assert [row.id for row in rows] == [forged, honest]
    with pytest.raises(TamperedError):
        received(rows[0], new_token())
    assert received(rows[1], new_token()).tenant == "acme"


def test_values_of_another_type_cannot_be_forged(sqlite_bench: Any) -> None:
    sqlite_bench.push()
    with raw(sqlite_bench.driver.path) as connection:
        for change in ("envelope = 5", "tenant = x'00'", "attempts = 'many'", "state = 7", "state = 2"):
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(f"UPDATE hesape_jobs SET {change}")


def test_a_file_of_schema_1_is_still_read(tmp_path: Path) -> None:
    """A dump as the first version wrote it: it is never made anew."""
    path = tmp_path / "old.db"
    with raw(path) as connection:
        connection.executescript((FIXTURES / "sqlite_schema_1.sql").read_text())
    expected = json.loads((FIXTURES / "sqlite_schema_1.json").read_text())
    keys = Keys(secrets={"2026": b"an example, not a secret"}, sealing="2026", accept_unsealed=True)
    driver = SqliteDriver(SqliteSettings(path=path))
    queue = Queue(driver, keys=keys)
    counts = queue.counts()
    assert (counts.pending, counts.delayed, counts.reserved, counts.failed) == (3, 1, 0, 1)
    jobs: list[Job | FailedJob] = [*queue.pop(n=10), *queue.operator().failed()]
    assert [[job.id, job.name, job.tenant, job.payload.decode(), job.priority] for job in jobs] == expected["jobs"]
    assert driver.read_flag(expected["flag"]) == "set"
    queue.operator().retry([expected["jobs"][-1][0]])
    assert len(queue.pop()) == 1
    assert driver.migrate() == []
    driver.close()
