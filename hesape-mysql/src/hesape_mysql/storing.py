"""Storing jobs: one packet for 500 rows, all or nothing, and what to do when an id is there already (I1, I2, B1).

Two may store the same jobs, or jobs with the same unique keys, at one time. Each waits for the other where it comes
second, so all take ids in ascending order, then keys in ascending order. The order of the call is in the rows (O1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from pymysql.err import IntegrityError

from hesape.driver import already_queued, already_stored
from hesape.envelope import same_content
from hesape.errors import StoreBusyError
from hesape.records import NewRow, Unique, new_token
from hesape_mysql.errors import CLIENT_ERRORS, DUPLICATE, code_of
from hesape_mysql.pool import OwnSession, Session
from hesape_mysql.records import blob, job_id, new_row, uuids
from hesape_mysql.statements import CLOCK, INSERT, LOCK, NOW, STORED, TAKE_KEY, TAKEN, Statements

_AT_ONCE: Final = 500
_ROW_OVERHEAD: Final = 1_500
"""What a row takes beside its envelope's two digits a byte, names of full length included."""
_SAVEPOINT: Final = "hesape_push_6f1d"

_Rows = list[tuple[int, NewRow]]
"""Rows with their positions in the call."""


def store(session: OwnSession, statements: Statements, rows: Sequence[NewRow]) -> None:
    """Store on a connection of our own: at first as if no id were known, and in one packet where that is enough."""
    fresh = _distinct(rows)
    chunks = list(_chunks(fresh, session.packet))
    now = _moment(session, statements, chunks)
    packets = [_insert(statements, chunk, now) for chunk in chunks]
    packets += [statements[TAKE_KEY] % _key_values(unique) for unique, _ in _unique_keys(fresh)]
    if len(packets) > 1:
        packets[0] = f"begin; {packets[0]}"
        packets[-1] = f"{packets[-1]}; commit"
    try:
        for number, packet in enumerate(packets, 1):
            session.ask(packet, commits=number == len(packets))
    except IntegrityError as error:
        if code_of(error) != DUPLICATE:
            raise
    else:
        return
    session.ask("rollback; begin")
    session.committing = False
    _store_beside(session, statements, rows, chunks)
    session.ask("commit", commits=True)


def store_lent(session: Session, statements: Statements, rows: Sequence[NewRow]) -> None:
    """Store on a lent connection, whose transaction goes on whatever happens here (X1)."""
    chunks = list(_chunks(_distinct(rows), session.packet))
    alone = all(row.unique is None for row in rows) and len(chunks) <= 1
    if alone:  # a single statement is all or nothing by itself
        _store_beside(session, statements, rows, chunks)
        return
    with _savepoint(session):
        _store_beside(session, statements, rows, chunks)


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
    return sorted(fresh, key=lambda item: item[1].id)


def _unique_keys(rows: _Rows) -> list[tuple[Unique, int]]:
    """The unique keys to take, with the positions of their jobs."""
    return sorted((row.unique, index) for index, row in rows if row.unique is not None)


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


def _moment(session: Session, statements: Statements, chunks: Sequence[_Rows]) -> str:
    """When a call's jobs are pushed: the same for all (O1), so several statements don't each go by their own clock."""
    return NOW if len(chunks) <= 1 else str(int(session.ask(statements[CLOCK])[0].rows[0][0]))


def _insert(statements: Statements, rows: _Rows, now: str) -> str:
    return statements[INSERT] % {"rows": ",".join([new_row(row, index, now) for index, row in rows])}


def _store_beside(session: Session, statements: Statements, rows: Sequence[NewRow], chunks: Sequence[_Rows]) -> None:
    """Store those in `chunks` that aren't there yet, then take the unique keys of these alone."""
    now = _moment(session, statements, chunks)
    stored: _Rows = []
    for chunk in chunks:
        stored += _insert_new(session, statements, rows, chunk, now)
    for unique, index in _unique_keys(stored):
        if not _key_taken(session, statements, unique):
            raise already_queued(rows, index)


def _insert_new(session: Session, statements: Statements, rows: Sequence[NewRow], chunk: _Rows, now: str) -> _Rows:
    if _inserted(session, _insert(statements, chunk, now)):
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
    if new and (len(new) == len(chunk) or not _inserted(session, _insert(statements, new, now))):
        message = "the id that was in the way is gone, or another came meanwhile; nothing was written"
        raise StoreBusyError(message)
    return new


def _inserted(session: Session, sql: str) -> bool:
    try:
        session.ask(sql)
    except IntegrityError as error:
        if code_of(error) != DUPLICATE:
            raise
        return False
    return True


def _as_text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _key_values(unique: Unique) -> dict[str, object]:
    """With a random owner: a job's own id must not take the key of its namesake that was settled."""
    return {"key": blob(unique.key), "owner": blob(new_token()), "ttl_us": unique.ttl_us}


def _key_taken(session: Session, statements: Statements, unique: Unique) -> bool:
    """Hold a unique key, a new one or one whose time is over; whether that worked (I2).

    Not by an insert that may fail: each of two who fail shares the entry, and then neither can have it alone.
    """
    values = _key_values(unique)
    session.ask(statements[LOCK] % values)
    taken = session.ask(statements[TAKEN] % values)[0].rows
    return bool(taken and taken[0][0])
