from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from hesape.errors import (
    HesapeError,
    NameInvalidError,
    PayloadInvalidError,
    PriorityInvalidError,
    SchemaError,
    StoreUnavailableError,
    TimeInvalidError,
    TransactionRefusedError,
)
from hesape_postgres.que import MissingTypeError, QueClient, QueJob

BIG = 2**200 + 1
MOMENT = datetime(2001, 2, 3, 4, 5, 6, 789012, tzinfo=timezone(timedelta(hours=5, minutes=30)))

BYTES = [
    b"[]",
    b"{}",
    b"[1.0, 1e3 ,  9007199254740993]",
    f"[{BIG}, {'9' * 5000}, 1e400]".encode(),
    '["\\u0000", "\\ud800", "\N{PILE OF POO} \N{LATIN SMALL LETTER E WITH ACUTE}"]'.encode(),
    b'[{"a": {"b": [[[null, true]]]}, "a": 2}]',
    b" [1]\n\t",
    b"null",
    b'"text"',
]
VALUES = [
    ([], b"[]"),
    ((1, "two"), b'[1,"two"]'),
    ([[1, [2, {"k": []}]]], b'[[1,[2,{"k":[]}]]]'),
    ({"id": 1}, b'[{"id":1}]'),
    ("text", b'["text"]'),
    (0, b"[0]"),
    (False, b"[false]"),
    (
        ["\N{PILE OF POO}\N{LATIN SMALL LETTER E WITH ACUTE}"],
        '["\N{PILE OF POO}\N{LATIN SMALL LETTER E WITH ACUTE}"]'.encode(),
    ),
    ([BIG, -1.5], f"[{BIG},-1.5]".encode()),
]
REFUSED = [
    b"{",
    b"[1,]",
    b"NaN",
    b"[Infinity]",
    b"\xff",
    b'["\x00"]',
    b" ",
    b"[" * 100_000,
    float("nan"),
    {1},
    [{1: 2}],
    ["\ud800"],
]


def stored(conn: psycopg.Connection[Any]) -> Any:
    return conn.execute("select convert_to(args::text, 'UTF8') from que_jobs").fetchall()[0][0]


@pytest.mark.parametrize("args", BYTES, ids=range(len(BYTES)))
def test_bytes_are_stored_and_read_back_unchanged(client: Any, conn: psycopg.Connection[Any], args: bytes) -> None:
    assert client.enqueue(QueJob("Any", args)).args == args
    assert stored(conn) == args
    with client.lock_job() as job:
        assert job.args == args


@pytest.mark.parametrize(("args", "expected"), VALUES, ids=range(len(VALUES)))
def test_a_value_is_written_as_an_array(client: Any, conn: psycopg.Connection[Any], args: Any, expected: bytes) -> None:
    assert client.enqueue(QueJob("Any", args)).args == expected
    assert stored(conn) == expected


@pytest.mark.parametrize("args", [None, b"", bytearray()])
def test_no_args_are_the_columns_default(client: Any, conn: psycopg.Connection[Any], args: Any) -> None:
    assert client.enqueue(QueJob("Any", args)).args == b"[]"
    assert stored(conn) == b"[]"


@pytest.mark.parametrize("args", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_json_is_refused_and_nothing_is_stored(
    client: Any, conn: psycopg.Connection[Any], args: Any
) -> None:
    with pytest.raises(PayloadInvalidError):
        client.enqueue(QueJob("Any", args))
    assert conn.execute("select from que_jobs").rowcount == 0


def test_the_defaults_are_priority_100_the_empty_queue_and_now(client: Any, plain: Any) -> None:
    before = plain.conn.execute("select now()").fetchall()[0][0]
    job = client.enqueue(QueJob("Any"))
    assert (job.queue, job.priority, job.error_count, job.last_error) == ("", 100, 0, None)
    assert job.run_at is not None
    assert before <= job.run_at <= plain.conn.execute("select now()").fetchall()[0][0]
    assert job.run_at.tzinfo is UTC


@pytest.mark.parametrize("priority", [0, -1, -32768, 32767])
def test_every_smallint_is_a_priority(client: Any, plain: Any, priority: int) -> None:
    assert client.enqueue(QueJob("Any", priority=priority)).priority == priority
    assert plain.rows()[0][1] == priority


def test_run_at_keeps_its_microseconds(client: Any, plain: Any) -> None:
    job = client.enqueue(QueJob("Any", run_at=MOMENT))
    assert job.run_at == MOMENT
    assert plain.rows()[0][2] == "2001-02-02 22:35:06.789012+00"
    with client.lock_job() as locked:
        assert locked.run_at == MOMENT


def test_the_stored_job_is_returned_and_the_callers_stays_as_it_was(client: Any) -> None:
    mine = QueJob("Any", [1], "q", id=77, error_count=9, last_error="old")
    theirs = client.enqueue(mine)
    assert (theirs.type, theirs.queue, theirs.error_count, theirs.last_error) == ("Any", "q", 0, None)
    assert isinstance(theirs.id, int)
    assert (mine.id, mine.args, mine.priority, mine.run_at) == (77, [1], None, None)
    assert theirs.conn is None


def test_a_job_without_a_type_is_refused(client: Any) -> None:
    with pytest.raises(MissingTypeError):
        client.enqueue(QueJob(""))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"priority": 32768}, PriorityInvalidError),
        ({"priority": True}, PriorityInvalidError),
        ({"priority": "1"}, PriorityInvalidError),
        ({"run_at": datetime(2020, 1, 1)}, TimeInvalidError),  # noqa: DTZ001 - that is the fault
        ({"queue": "a\0b"}, NameInvalidError),
        ({"type": "\ud800"}, NameInvalidError),
        ({"type": None}, NameInvalidError),
    ],
    ids=str,
)
def test_a_field_out_of_range_is_refused_when_it_is_set(changes: dict[str, Any], error: type[HesapeError]) -> None:
    with pytest.raises(error):
        QueJob(**{"type": "Any", **changes})
    job = QueJob("Any")
    [(name, value)] = changes.items()
    with pytest.raises(error):
        setattr(job, name, value)


def test_a_job_joins_the_callers_transaction(client: Any, url: str, plain: Any) -> None:
    with psycopg.connect(url, row_factory=dict_row) as tx:
        kept = client.enqueue_in_tx(QueJob("Kept", [1]), tx)
        assert plain.rows() == []
        with tx.cursor() as cursor:
            client.enqueue_in_tx(QueJob("AlsoKept"), cursor)
        with tx.transaction():
            client.enqueue_in_tx(QueJob("Undone"), tx)
            raise psycopg.Rollback
        assert plain.rows() == []
        tx.commit()
        assert [(row[3], row[4]) for row in plain.rows()] == [(kept.id, "Kept"), (plain.rows()[1][3], "AlsoKept")]
        client.enqueue_in_tx(QueJob("RolledBack"), tx)
        tx.rollback()
    assert len(plain.rows()) == 2


def test_a_connection_that_would_commit_at_once_is_refused(client: Any, conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(TransactionRefusedError, match="autocommit"):
        client.enqueue_in_tx(QueJob("Any"), conn)
    with conn.transaction():
        client.enqueue_in_tx(QueJob("Any"), conn)
    assert conn.execute("select from que_jobs").rowcount == 1


def test_what_is_no_psycopg_connection_is_refused_by_name(client: Any) -> None:
    lent: Any = object()
    with pytest.raises(TransactionRefusedError, match="object"):
        client.enqueue_in_tx(QueJob("Any"), lent)


def test_the_pools_connection_comes_back_as_it_was(pool: ConnectionPool[Any], client: Any, idle: Any) -> None:
    client.enqueue(QueJob("Any"))
    with client.lock_job() as job:
        assert job.conn is not None
        assert job.conn.autocommit
    assert idle()
    with pool.connection() as conn:
        assert not conn.autocommit


def test_a_missing_table_and_an_unreachable_server_are_told_apart(
    client: Any, conn: psycopg.Connection[Any], idle: Any, until: Any
) -> None:
    conn.execute("drop table que_jobs")
    with pytest.raises(SchemaError):
        client.enqueue(QueJob("Any"))
    with pytest.raises(SchemaError):
        client.lock_job()
    until(idle)
    with ConnectionPool("host=127.0.0.1 port=1 user=nobody", min_size=0, max_size=1, timeout=0.2) as dead:
        with pytest.raises(StoreUnavailableError):
            QueClient(dead).lock_job()
        with pytest.raises(StoreUnavailableError):
            QueClient(dead).enqueue(QueJob("Any"))


def test_cursors_and_types_that_the_pool_set_up_are_no_matter(url: str) -> None:
    def configure(conn: psycopg.Connection[Any]) -> None:
        conn.row_factory = dict_row
        conn.cursor_factory = psycopg.ClientCursor
        conn.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'German'; set client_encoding = 'LATIN1'")
        conn.commit()

    with ConnectionPool(url, min_size=0, max_size=1, configure=configure) as pool:
        client: Any = QueClient(pool)
        args = json.dumps(["\N{PILE OF POO}"], ensure_ascii=False).encode()
        assert client.enqueue(QueJob("Any", args, run_at=MOMENT)).args == args
        with client.lock_job() as job:
            assert (job.args, job.run_at) == (args, MOMENT)
            job.delete()
        assert client.lock_job() is None
