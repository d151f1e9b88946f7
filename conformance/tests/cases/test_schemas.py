"""The tables of the stores that have some: made once, shown before they are made, read when an old version made them.

A dump in `first_schema` is as the first version wrote it, with jobs of every state: it is never made anew.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from hesape.envelope import Keys
from hesape.failed import FailedJob
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_conformance.harness import Harness
from hesape_mysql.testing import MySQLHarness

if TYPE_CHECKING:
    from cases.conftest import Site

FOLDER = Path(__file__).with_name("first_schema")
KEYS = Keys(secrets={"2026": b"an example, not a secret"}, sealing="2026", accept_unsealed=True)


def execute(harness: Harness, script: str) -> None:
    """Run statements as a person would, without the driver."""
    if isinstance(harness, MySQLHarness):
        with closing(harness.connect()) as conn, conn.cursor() as cursor:
            for statement in filter(str.strip, script.split(";\n")):
                cursor.execute(statement)
            conn.commit()
    else:
        with psycopg.connect(harness.settings("any").url) as session:
            session.execute(script.encode())


@pytest.mark.parametrize("harness", ["mysql", "postgres"], indirect=True)
def test_the_tables_of_the_first_version_are_still_read(harness: Harness) -> None:
    kind = harness.driver
    expected = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
    harness.drop("old")
    execute(harness, (FOLDER / f"{kind}.sql").read_text(encoding="utf-8"))
    with closing(harness.open("old")) as driver:
        queue = Queue(driver, keys=KEYS)
        driver.migrate()
        driver.rescue()
        counts = queue.counts()
        assert (counts.pending, counts.delayed, counts.reserved, counts.failed) == (3, 1, 0, 1)
        jobs: list[Job | FailedJob] = [*queue.pop(n=10), *queue.operator().failed()]
        told = [[job.id, job.name, job.tenant, job.payload.decode(), job.priority] for job in jobs]
        assert told == [*expected["ready"], expected["failed"]]
        assert [job.attempts for job in jobs] == [1, 2, 1, 1]
        assert (jobs[-1].last_error or "").startswith("ValueError: é 😀")
        assert queue.flag("seen").value() == "set"
        assert queue.pop("Still") == []
        queue.operator().resume("Still")
        assert [job.decode() for job in queue.pop("Still")] == [{"n": 2}]
        queue.operator().retry([expected["failed"][0]])
        [again] = queue.pop()
        again.delete()
        assert driver.migrate() == []
    harness.drop("old")


@pytest.mark.parametrize("harness", ["sqlite", "mysql", "postgres"], indirect=True)
def test_two_commands_that_migrate_at_once_apply_each_step_once(site: Site) -> None:
    expected = [str(step.number) for step in site.queue.driver.migrations()]
    site.queue.driver.close()
    site.harness.drop(site.namespace)
    both = [site.command("migrate") for _ in range(2)]
    said = [one.communicate(timeout=60)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    applied = [line.split()[1].rstrip(":") for text in said for line in text.splitlines() if line.startswith("applied")]
    assert sorted(applied) == expected, said
    site.push("quick", number=1)
    assert site.queue.counts().size == 1


@pytest.mark.parametrize("harness", ["sqlite", "mysql", "postgres"], indirect=True)
def test_plan_and_sql_change_nothing_and_what_is_printed_makes_the_tables(site: Site) -> None:
    steps = site.queue.driver.migrations()
    site.queue.driver.close()
    site.harness.drop(site.namespace)
    plan, sql = (_said(site, "migrate", flag) for flag in ("--plan", "--sql"))
    for step in steps:
        assert step.title in plan
        assert step.sql.strip() in sql
    assert _said(site, "migrate", "--plan") == plan, "looking changed something"
    if site.harness.driver != "sqlite":  # its own tests run what is printed there
        execute(site.harness, sql)
        assert "nothing is missing" in _said(site, "migrate", "--plan")
    site.push("quick", number=1)
    assert site.queue.counts().size == 1


def _said(site: Site, *words: str) -> str:
    one = site.command(*words)
    text: str = one.communicate(timeout=60)[0]
    assert one.returncode == 0, text
    return text
