from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from hesape_conformance import guard
from hesape_postgres import testing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def private() -> Iterator[testing.PrivatePostgres]:
    with testing.PrivatePostgres(max_connections=17) as server:
        yield server


def test_what_was_committed_outlives_a_killed_server(private: testing.PrivatePostgres) -> None:
    with psycopg.connect(private.url) as conn:
        conn.execute("create table kept (n int)")
        conn.execute("insert into kept values (42)")
    private.kill()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(private.url)
    private.start()
    with psycopg.connect(private.url) as conn:
        assert conn.execute("select n from kept").fetchall() == [(42,)]


def test_a_restart_ends_a_session_that_was_open(private: testing.PrivatePostgres) -> None:
    with psycopg.connect(private.url, autocommit=True) as conn:
        private.restart()
        with pytest.raises(psycopg.OperationalError):
            conn.execute("select 1")
    assert private.answers()


def test_it_is_durable_and_takes_settings(private: testing.PrivatePostgres) -> None:
    with psycopg.connect(private.url) as conn:
        row = conn.execute("select current_setting('fsync'), current_setting('max_connections')").fetchone()
    assert row == ("on", "17")


def test_no_process_and_no_file_is_left() -> None:
    with testing.PrivatePostgres() as server:
        assert len(guard.processes_in(server.folder)) > 1
    assert guard.processes_in(server.folder) == set()
    assert not server.folder.exists()


def test_a_given_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESAPE_TEST_POSTGRES_URL", "postgresql://given/one")
    with testing.server() as server:
        assert server.url == "postgresql://given/one"
