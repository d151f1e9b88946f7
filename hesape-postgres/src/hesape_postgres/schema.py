"""The tables, as numbered steps that are applied once, and how they are found and brought up to date."""

from __future__ import annotations

import hashlib
import logging
from typing import Final, NamedTuple

import psycopg

from hesape.errors import SchemaError
from hesape.records import Migration
from hesape_postgres.statements import Bound

logger = logging.getLogger(__name__)

_TABLES = """\
do $$ begin
  if to_regnamespace('{schema}') is null then create schema {schema}; end if;
end $$;
create table {meta} (
  one boolean primary key default true check (one),
  version integer not null,
  compatible integer not null,
  store_id uuid not null
);
insert into {meta} (version, compatible, store_id) values (0, 1, gen_random_uuid());
create table {jobs} (
  id uuid primary key,
  token uuid,
  seq bigint generated always as identity,
  arrival xid8 not null default pg_current_xact_id(),
  due_us bigint not null,
  pushed_us bigint not null,
  reserved_us bigint,
  claimed_us bigint,
  retried_us bigint,
  failed_us bigint,
  attempts integer not null default 0,
  lapses integer not null default 0,
  exceptions integer not null default 0,
  state smallint not null check (state between 0 and 3),
  priority smallint not null,
  queue text collate "C" not null,
  tenant text collate "C" not null,
  name text collate "C" not null,
  worker text collate "C" not null default '',
  last_error text,
  envelope bytea not null
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0
);
create index {prefix}ready on {jobs} (queue, priority, due_us, seq) where state = 0;
create index {prefix}arrivals on {jobs} (arrival, queue) where state in (0, 1);
create index {prefix}scheduled on {jobs} (queue, due_us) where state = 1;
create index {prefix}leases on {jobs} (queue, reserved_us) where state = 2;
create index {prefix}held on {jobs} (worker, token) where state = 2;
create index {prefix}failed on {jobs} (failed_us, id) where state = 3;
create index {prefix}failed_by_queue on {jobs} (queue, failed_us, id) where state = 3;
create index {prefix}failed_by_tenant on {jobs} (tenant, failed_us, id) where state = 3;
create table {entries} (
  key text collate "C" primary key,
  owner text not null default '',
  count bigint not null default 0,
  expires_us bigint
);
create index {prefix}entries_expiring on {entries} (expires_us) where expires_us is not null;
create table {workers} (
  worker text collate "C" primary key,
  beat_us bigint not null,
  until_us bigint not null,
  lock_key bigint,
  pid integer,
  server_us bigint,
  missing_us bigint
);
create table {paused} (queue text collate "C" primary key);
comment on column {jobs}.state is '0 ready, 1 scheduled, 2 reserved, 3 failed';
comment on column {jobs}.arrival is 'the transaction that made the job wait';
comment on column {jobs}.due_us is 'microseconds since 1970, UTC, like all of these';
"""
# Why each index: it has the filter and the order of one statement. Ready rows are claimed in its order; what isn't due,
# is reserved or failed lies in others, so that it costs a claim nothing (O2). `held` finds a worker's jobs and a claim
# that is sent again, `arrivals` what a mark's snapshot couldn't see.

_STEPS: Final = ((1, "the tables", _TABLES),)
LATEST: Final = _STEPS[-1][0]
OLDEST_FIT: Final = 1
"""The lowest schema that this version works on."""

_FIND = "select to_regclass(%(table)s) is not null"
_READ = "select version, compatible, store_id::text from {meta}"


class Found(NamedTuple):
    """What a database has."""

    version: int
    compatible: int
    """The lowest `LATEST` of a version that may still work on it."""
    store_id: str


NONE: Final = Found(0, 0, "")


def migrations(sql: Bound) -> list[Migration]:
    """Every step in order, each as a person would run it."""
    return [
        Migration(number, title, sql.text(body) + sql.text(f"update {{meta}} set version = {number};\n"))
        for number, title, body in _STEPS
    ]


def read(conn: psycopg.Connection, sql: Bound) -> Found:
    """What is there, `NONE` without tables."""
    there = conn.execute(_FIND, {"table": sql.text("{meta}")}, prepare=False).fetchone()
    if there is None or not there[0]:
        return NONE
    found = conn.execute(sql[_READ], prepare=False).fetchone()
    return NONE if found is None else Found._make(found)


def migrate(conn: psycopg.Connection, sql: Bound) -> list[int]:
    """Apply the missing steps in one transaction; their numbers. Of two at once the second finds nothing to do."""
    with conn.transaction():
        conn.execute("select set_config('lock_timeout', '60s', true), set_config('statement_timeout', '0', true)")
        # A lock of the transaction, not of the session: it also works behind a pooler
        conn.execute("select pg_advisory_xact_lock(%s)", (_lock_key(sql),), prepare=False)
        found = read(conn, sql)
        missing = [step for step in migrations(sql) if step.number > found.version]
        for step in missing:
            conn.execute(step.sql.encode(), prepare=False)
    for step in missing:
        logger.info("applied migration %d (%s) to %s", step.number, step.title, sql.text("{meta}"))
    return [step.number for step in missing]


def check(found: Found, sql: Bound) -> None:
    """Raise `SchemaError` for tables that this version can't work on."""
    tables = sql.text("{prefix}* in the schema {schema}")
    if found.version == 0:
        message = f"the tables {tables} are missing; run `hesape migrate`"
        raise SchemaError(message)
    if found.version < OLDEST_FIT:
        message = f"the tables {tables} have version {found.version}, {OLDEST_FIT} is needed; run `hesape migrate`"
        raise SchemaError(message)
    if found.compatible > LATEST:
        message = f"the tables {tables} need a newer hesape: one of schema {found.compatible}, this one knows {LATEST}"
        raise SchemaError(message)


def _lock_key(sql: Bound) -> int:
    return int.from_bytes(hashlib.sha256(sql.text("migrate {meta}").encode()).digest()[:8], "big", signed=True)
