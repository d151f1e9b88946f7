"""The table itself: made where it is missing, recognised where it is there, never changed."""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg.rows import TupleRow, tuple_row

from hesape.errors import SchemaError
from hesape_postgres.que.errors import translate_errors

VERSION: Final = 3
"""The schema that this package works: that of the 0.x gem and the Go client."""

CREATE: Final = """
create table que_jobs (
    priority    smallint    not null default 100,
    run_at      timestamptz not null default now(),
    job_id      bigserial   not null,
    job_class   text        not null,
    args        json        not null default '[]'::json,
    error_count integer     not null default 0,
    last_error  text,
    queue       text        not null default '',
    constraint que_jobs_pkey primary key (queue, priority, run_at, job_id)
)
"""
COMMENT: Final = f"comment on table que_jobs is '{VERSION}'"

_COLUMNS: Final = {
    "priority": "smallint",
    "run_at": "timestamp with time zone",
    "job_id": "bigint",
    "job_class": "text",
    "args": "json",
    "error_count": "integer",
    "last_error": "text",
    "queue": "text",
}
_KEY: Final = ["queue", "priority", "run_at", "job_id"]

_FIND: Final = """
select c.oid, obj_description(c.oid, 'pg_class'), pg_has_role(c.relowner, 'USAGE')
  from pg_class c
 where c.oid = to_regclass('que_jobs') and c.relkind in ('r', 'p')
"""
_FIND_COLUMNS: Final = """
select attname, format_type(atttypid, null)
  from pg_attribute
 where attrelid = %s and attnum > 0 and not attisdropped
"""
_FIND_KEY: Final = """
select a.attname
  from pg_index i
 cross join unnest(i.indkey) with ordinality as k (attnum, position)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
 where i.indrelid = %s and i.indisprimary
 order by k.position
"""
# Two integers, so that it collides with no job's lock.
_SERIALISE: Final = "select pg_advisory_xact_lock(hashtext('que_jobs'), hashtext(current_schema()))"

MAKE: Final = "python -m hesape_postgres.que migrate ADDRESS"
_OLDER: Final = "upgrade it to 3 with the Ruby gem's own migrations first"
_NEWER: Final = {
    4: "Que 1.0 moved finished and failed jobs into columns",
    5: "Que 1.x notifies and locks in batches of its own",
    6: "Que 2.0 keeps keyword arguments in a column of their own",
    7: "Que 2.1 and later",
}


def migrate(conn: psycopg.Connection[Any]) -> bool:
    """Make the table of schema 3 if there is none on the search path; whether it was made.

    A table of schema 3 is recognised by its comment, or by its shape where a dump has dropped that; the comment is then
    put back if this user owns the table, since Ruby takes a table without one for schema 1. Every other schema raises
    `SchemaError` and is left alone. Joins the transaction that `conn` is in, and else commits its own.
    """
    with translate_errors("migrating a Que table"), conn.transaction():
        _rows(conn, _SERIALISE)
        found = _table(conn)
        if found is None:
            conn.execute(CREATE)
            conn.execute(COMMENT)
            return True
        oid, comment, owned = found
        _refuse_others(_version(conn, oid, comment))
        if comment is None and owned:
            conn.execute(COMMENT)
        return False


def schema_version(conn: psycopg.Connection[Any]) -> int:
    """The version of the Que table on the search path, by its comment or its shape; 0 when there is no table.

    Raises `SchemaError` for a table called que_jobs that is none of Que's.
    """
    with translate_errors("looking at a Que table"):
        found = _table(conn)
        return 0 if found is None else _version(conn, found[0], found[1])


def check_schema(conn: psycopg.Connection[Any]) -> None:
    """Raise `SchemaError` unless there is a table of schema 3."""
    version = schema_version(conn)
    if not version:
        raise SchemaError(f"there is no table que_jobs on the search path; make one with: {MAKE}")
    _refuse_others(version)


def _refuse_others(version: int) -> None:
    if version < VERSION:
        raise SchemaError(f"que_jobs has Que schema {version}, this is a client of schema 3; {_OLDER}")
    if version > VERSION:
        reason = _NEWER.get(version, "it is newer than any known here")
        message = f"que_jobs has Que schema {version}, this is a client of schema 3: {reason}"
        raise SchemaError(f"{message}; no client of one of these two generations can work the other's table")


def _table(conn: psycopg.Connection[Any]) -> tuple[int, str | None, bool] | None:
    rows = _rows(conn, _FIND)
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


def _version(conn: psycopg.Connection[Any], oid: int, comment: str | None) -> int:
    columns: dict[str, str] = dict(_rows(conn, _FIND_COLUMNS, (oid,)))
    key = [row[0] for row in _rows(conn, _FIND_KEY, (oid,))]
    version = _by_shape(columns, key)
    if comment is not None and comment.strip().isdecimal() and (int(comment) != VERSION or version == VERSION):
        return int(comment)
    if not version or comment == str(VERSION):
        said = "no comment" if comment is None else f"the comment {comment!r}"
        needed = [f"the key ({', '.join(_KEY)})"]
        needed += [f"{name} {kind}" for name, kind in _COLUMNS.items() if columns.get(name) != kind]
        found = f"que_jobs has {said}, the key ({', '.join(key)}) and the columns {', '.join(columns)}"
        raise SchemaError(f"{found}: no schema of Que's; for schema 3 it needs {', '.join(needed)}")
    return version


def _by_shape(columns: dict[str, str], key: list[str]) -> int:
    """The version whose columns and key these are, or 0. Columns that somebody added are no matter."""
    if key == _KEY and all(columns.get(name) == kind for name, kind in _COLUMNS.items()):
        return VERSION
    if key == ["id"] and "finished_at" in columns:
        if "kwargs" in columns:
            return 6  # 7 only adds a trigger's condition
        return 5 if "job_schema_version" in columns else 4
    if key == ["priority", "run_at", "job_id"] and "queue" not in columns:
        return 2 if columns.get("priority") == "integer" and "job_class" in columns else 0
    return 0


def _rows(conn: psycopg.Connection[Any], query: str, parameters: tuple[Any, ...] = ()) -> list[TupleRow]:
    return psycopg.Cursor(conn, row_factory=tuple_row).execute(query, parameters).fetchall()
