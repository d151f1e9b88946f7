from __future__ import annotations

from typing import Any

import psycopg
import pytest

from hesape.errors import SchemaError
from hesape_postgres.que import QueJob, migrate, schema_version

FINISHED = "finished_at timestamptz, expired_at timestamptz, data jsonb"
OTHERS = {
    1: "(priority int not null default 1, run_at timestamptz, job_id bigserial, job_class text, args json,"
    " error_count int, last_error text, primary key (priority, run_at, job_id))",
    2: "(priority int not null default 100, run_at timestamptz, job_id bigserial, job_class text, args json,"
    " error_count int, last_error text, primary key (priority, run_at, job_id))",
    4: f"(id bigserial primary key, priority smallint, run_at timestamptz, job_class text, args jsonb, {FINISHED})",
    5: f"(id bigserial primary key, job_class text, args jsonb, {FINISHED}, job_schema_version int default 1)",
    6: f"(id bigserial primary key, job_class text, args jsonb, kwargs jsonb, {FINISHED}, job_schema_version int)",
    7: f"(id bigserial primary key, job_class text, args jsonb, kwargs jsonb, {FINISHED}, job_schema_version int)",
}
COLUMNS = """
select column_name, data_type, is_nullable, column_default from information_schema.columns
 where table_name = 'que_jobs' order by ordinal_position
"""


def comment(conn: psycopg.Connection[Any]) -> Any:
    return conn.execute("select obj_description('que_jobs'::regclass, 'pg_class')").fetchall()[0][0]


@pytest.fixture
def bare(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    conn.execute("drop table que_jobs")
    return conn


def test_a_missing_table_is_made_as_schema_3(bare: Any) -> None:
    assert schema_version(bare) == 0
    assert migrate(bare)
    assert not migrate(bare)
    assert schema_version(bare) == 3
    assert comment(bare) == "3"
    assert bare.execute(COLUMNS).fetchall() == [
        ("priority", "smallint", "NO", "100"),
        ("run_at", "timestamp with time zone", "NO", "now()"),
        ("job_id", "bigint", "NO", "nextval('que_jobs_job_id_seq'::regclass)"),
        ("job_class", "text", "NO", None),
        ("args", "json", "NO", "'[]'::json"),
        ("error_count", "integer", "NO", "0"),
        ("last_error", "text", "YES", None),
        ("queue", "text", "NO", "''::text"),
    ]
    [(key,)] = bare.execute("select pg_get_indexdef('que_jobs_pkey'::regclass)").fetchall()
    assert key.endswith("(queue, priority, run_at, job_id)")


def test_it_is_recognised_by_its_shape_when_the_comment_is_missing(conn: Any, client: Any) -> None:
    client.enqueue(QueJob("Kept"))
    conn.execute("alter table que_jobs add column noted text; comment on table que_jobs is null")
    assert schema_version(conn) == 3
    assert not migrate(conn)
    assert comment(conn) == "3"
    with client.lock_job() as job:
        assert job.type == "Kept"


def test_another_comment_on_a_table_of_this_shape_stays(conn: Any) -> None:
    conn.execute("comment on table que_jobs is 'the jobs'")
    assert schema_version(conn) == 3
    assert not migrate(conn)
    assert comment(conn) == "the jobs"


def test_a_user_who_does_not_own_the_table_leaves_its_comment(conn: Any, url: str) -> None:
    conn.execute("comment on table que_jobs is null; drop role if exists que_guest; create role que_guest")
    with psycopg.connect(url) as guest:
        guest.execute("set role que_guest")
        assert not migrate(guest)
        guest.rollback()
    assert comment(conn) is None


@pytest.mark.parametrize("said", [True, False], ids=["by its comment", "by its shape"])
@pytest.mark.parametrize("version", OTHERS)
def test_every_other_schema_is_refused_by_name_and_left_alone(bare: Any, version: int, said: Any) -> None:
    bare.execute(f"create table que_jobs {OTHERS[version]}")
    if said:
        bare.execute(f"comment on table que_jobs is '{version}'")
    before = bare.execute(COLUMNS).fetchall()
    shown = version if said else {1: 2, 7: 6}.get(version, version)
    with pytest.raises(SchemaError, match=f"Que schema {shown}\\b"):
        migrate(bare)
    assert schema_version(bare) == shown
    assert bare.execute(COLUMNS).fetchall() == before


def test_a_version_of_the_future_is_refused(conn: Any) -> None:
    conn.execute("comment on table que_jobs is '8'")
    with pytest.raises(SchemaError, match="8"):
        migrate(conn)


@pytest.mark.parametrize("said", ["null", "'3'"])
def test_a_table_that_only_has_the_name_is_refused_with_what_it_lacks(bare: Any, said: str) -> None:
    bare.execute(f"create table que_jobs (id int primary key, queue text); comment on table que_jobs is {said}")
    with pytest.raises(SchemaError, match="job_class text"):
        migrate(bare)
    with pytest.raises(SchemaError, match="key"):
        schema_version(bare)


def test_a_migration_joins_the_callers_transaction(bare: Any, url: str) -> None:
    with psycopg.connect(url) as tx:
        tx.execute("select 1")
        assert migrate(tx)
        assert schema_version(bare) == 0
        tx.rollback()
        assert migrate(tx)
        assert schema_version(bare) == 3
