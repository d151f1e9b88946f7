from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from hesape_conformance import guard
from hesape_mysql import testing

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def private() -> Iterator[testing.PrivateMariaDB]:
    with testing.PrivateMariaDB(max_connections=17) as server:
        yield server


def ask(server: testing.PrivateMariaDB, *statements: str) -> tuple[tuple[Any, ...], ...]:
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="test") as conn:
        with conn.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            rows = cursor.fetchall()
        conn.commit()
        return rows


def test_what_was_committed_outlives_a_killed_server(private: testing.PrivateMariaDB) -> None:
    ask(private, "create table kept (n int)", "insert into kept values (42)")
    private.kill()
    with pytest.raises(pymysql.err.OperationalError):
        ask(private, "select 1")
    private.start()
    assert ask(private, "select n from kept") == ((42,),)


def test_a_restart_brings_it_back_at_the_same_address(private: testing.PrivateMariaDB) -> None:
    private.restart()
    assert ask(private, "select 1") == ((1,),)


def test_it_keeps_the_servers_own_defaults_and_takes_settings(private: testing.PrivateMariaDB) -> None:
    row = ask(private, "select @@character_set_server, @@innodb_flush_log_at_trx_commit, @@max_connections")[0]
    assert row == ("latin1", 1, 17)


def test_no_process_and_no_file_is_left() -> None:
    with testing.PrivateMariaDB() as server:
        assert len(guard.processes_in(server.folder)) > 0
    assert guard.processes_in(server.folder) == set()
    assert not server.folder.exists()


def test_a_given_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESAPE_TEST_MYSQL_URL", "mysql://given/one")
    with testing.server() as server:
        assert server.url == "mysql://given/one"
