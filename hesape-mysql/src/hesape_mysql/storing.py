"""Storing jobs: one packet for 500 rows, all or nothing, and what to do when an id is there already (I1, I2, B1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import pymysql

from hesape.driver import already_queued, already_stored
from hesape.envelope import same_content
from hesape.errors import StoreBusyError
from hesape.records import NewRow
from hesape_mysql.errors import CLIENT_ERRORS, DUPLICATE, code_of
from hesape_mysql.pool import OwnSession, Session
from hesape_mysql.records import blob, job_id, new_row, uuids
from hesape_mysql.statements import INSERT, KEY_HELD, RETAKE_KEY, STORED, TAKE_KEY, Statements

_AT_ONCE: Final = 500
_ROW_OVERHEAD: Final = 1_500
"""What a row takes beside its envelope's two digits a byte, names of full length included."""
_SAVEPOINT: Final = "hesape_push_6f1d"

_Rows = list[tuple[int, NewRow]]
"""Rows with their positions in the call."""


def store(session: OwnSession, statements: Statements, rows: Sequence[NewRow]) -> None:
    """Store on a connection of our own: at first as if no id were known, and in one packet where that is enough."""
    fresh = _distinct(rows)
    packets = [_insert(statements, chunk) for chunk in _chunks(fresh, session.packet)]
    packets += [_take_key(statements, row) for _, row in fresh if row.unique is not None]
    if len(packets) > 1:
        packets[0] = f"begin; {packets[0]}"
        packets[-1] = f"{packets[-1]}; commit"
    try:
        for number, packet in enumerate(packets, 1):
            session.ask(packet, commits=number == len(packets))
    except pymysql.err.IntegrityError as error:
        if code_of(error) != DUPLICATE:
            raise
    else:
        return
    session.ask("rollback; begin")
    session.committing = False
    _store_beside(session, statements, rows, fresh)
    session.ask("commit", commits=True)


def store_lent(session: Session, statements: Statements, rows: Sequence[NewRow]) -> None:
    """Store on a lent connection, whose transaction goes on whatever happens here (X1)."""
    fresh = _distinct(rows)
    alone = all(row.unique is None for row in rows) and len(list(_chunks(fresh, session.packet))) <= 1
    if alone:  # a single statement is all or nothing by itself
        _store_beside(session, statements, rows, fresh)
        return
    with _savepoint(session):
        _store_beside(session, statements, rows, fresh)


@contextmanager
def _savepoint(session: Session) -> Iterator[None]:
    session.ask(f"savepoint {_SAVEPOINT}")
    try:
        yield
    except BaseException:
        # It fails when a deadlock took the whole transaction, or the connection is gone: so are our rows.
        with suppress(*CLIENT_ERRORS):
            session.ask(f"rollback to savepoint {_SAVEPOINT}")
        raise
    session.ask(f"release savepoint {_SAVEPOINT}")


def _distinct(rows: Sequence[NewRow]) -> _Rows:
    """The rows without those that the call repeats; a repeated id with other content is at fault (I1)."""
    first: dict[str, NewRow] = {}
    fresh: _Rows = []
    for index, row in enumerate(rows):
        earlier = first.setdefault(row.id, row)
        if earlier is row:
            fresh.append((index, row))
        elif earlier.tenant != row.tenant or not same_content(earlier.envelope, row.envelope):
            raise already_stored(rows, index)
    return fresh


def _chunks(rows: _Rows, packet: int) -> Iterator[_Rows]:
    chunk: _Rows = []
    size = 0
    for item in rows:
        cost = 2 * len(item[1].envelope) + _ROW_OVERHEAD
        if chunk and (len(chunk) == _AT_ONCE or size + cost > packet - 1024):
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += cost
    if chunk:
        yield chunk


def _insert(statements: Statements, rows: _Rows) -> str:
    return statements[INSERT] % {"rows": ",".join([new_row(row, index) for index, row in rows])}


def _store_beside(session: Session, statements: Statements, rows: Sequence[NewRow], fresh: _Rows) -> None:
    """Store those of `fresh` that aren't there yet, then take the unique keys of these alone."""
    stored: _Rows = []
    for chunk in _chunks(fresh, session.packet):
        stored += _insert_new(session, statements, rows, chunk)
    for index, row in stored:
        if row.unique is not None and not _key_taken(session, statements, row):
            raise already_queued(rows, index)


def _insert_new(session: Session, statements: Statements, rows: Sequence[NewRow], chunk: _Rows) -> _Rows:
    if _inserted(session, _insert(statements, chunk)):
        return chunk
    answer = session.ask(statements[STORED] % {"ids": uuids(row.id for _, row in chunk)})[0]
    there = {job_id(bytes(found)): (_as_text(tenant), bytes(envelope)) for found, tenant, envelope in answer.rows}
    new: _Rows = []
    for index, row in chunk:
        found = there.get(row.id)
        if found is None:
            new.append((index, row))
        elif found[0] != row.tenant or not same_content(found[1], row.envelope):
            raise already_stored(rows, index)
    if new and (len(new) == len(chunk) or not _inserted(session, _insert(statements, new))):
        message = "the id that was in the way is gone, or another came meanwhile; nothing was written"
        raise StoreBusyError(message)
    return new


def _inserted(session: Session, sql: str) -> bool:
    try:
        session.ask(sql)
    except pymysql.err.IntegrityError as error:
        if code_of(error) != DUPLICATE:
            raise
        return False
    return True


def _as_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _take_key(statements: Statements, row: NewRow) -> str:
    assert row.unique is not None  # noqa: S101 - the caller looked
    values = {"key": blob(row.unique.key), "owner": blob(row.id), "ttl_us": row.unique.ttl_us}
    return statements[TAKE_KEY] % values


def _key_taken(session: Session, statements: Statements, row: NewRow) -> bool:
    """Hold the row's unique key, a new one or one whose time is over; whether that worked (I2)."""
    assert row.unique is not None  # noqa: S101
    if _inserted(session, _take_key(statements, row)):
        return True
    values = {"key": blob(row.unique.key), "owner": blob(row.id), "ttl_us": row.unique.ttl_us}
    held = session.ask(statements[KEY_HELD] % values)[0].rows
    if held and int(held[0][0]):
        return False
    session.ask(statements[RETAKE_KEY] % values)
    return True
