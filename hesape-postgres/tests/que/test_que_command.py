"""The command that makes a Que table."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from hesape_postgres.que.__main__ import main


def test_it_makes_the_table_once_and_says_which(
    url: str, conn: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    conn.execute("drop table que_jobs")
    assert main(["migrate", url]) == 0
    assert capsys.readouterr().out == "que_jobs was made, schema version 3\n"
    assert main(["migrate", url]) == 0
    assert "there already" in capsys.readouterr().out


def test_another_schema_is_refused_by_its_number(
    url: str, conn: psycopg.Connection[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    conn.execute("comment on table que_jobs is '6'")
    assert main(["migrate", url]) == 1
    assert "error[schema]" in (said := capsys.readouterr().err)
    assert "6" in said


def test_a_server_that_cannot_be_reached_is_said_so_without_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "postgresql://anna:hush@127.0.0.1:1/x"]) == 1
    assert "error[store-unavailable]" in (said := capsys.readouterr().err)
    assert "hush" not in said
