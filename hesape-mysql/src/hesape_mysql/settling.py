"""Settling deliveries, each under its token (L4), on a connection of our own or a lent one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hesape.records import Key
from hesape_mysql.claiming import current_among, current_ones, still_there
from hesape_mysql.pool import OwnSession, Session
from hesape_mysql.records import State, blob, current, deliveries, job_id, optional_text, raw_ids, uuid
from hesape_mysql.statements import (
    AT_MOMENT,
    CURRENT,
    DEADLINES,
    DELETE,
    DELETE_IDS,
    EXTEND,
    FAIL,
    HAND_BACK,
    LOCKED,
    MOMENT,
    RELEASE,
    SETTLED_BY,
    UNLOCKED,
    Statements,
)


def delete(session: OwnSession, statements: Statements, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete the current ones in one round trip and return the others (S3)."""
    if not keys:
        return []
    condition = current_among(keys)
    look = f"{statements[MOMENT]}; begin; {statements[LOCKED] % condition}"
    answers = session.ask(f"{look}; {statements[DELETE] % condition}; commit", commits=True)
    return _lost(session, statements, keys, current_ones(answers[2]), repeat=repeat)


def delete_lent(session: Session, statements: Statements, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """As `delete`, in the transaction of a lent connection (S4)."""
    if not keys:
        return []
    found = [bytes(row[0]) for row in session.ask(statements[CURRENT] % {"current": current(keys)})[0].rows]
    if found:
        session.ask(statements[DELETE_IDS] % {"ids": raw_ids(both[:16] for both in found)})
    return _lost(session, statements, keys, deliveries(found), repeat=repeat)


def _lost(
    session: Session, statements: Statements, keys: Sequence[Key], deleted: Collection[Key], *, repeat: bool
) -> list[Key]:
    lost = [key for key in keys if key not in deleted]
    return still_there(session, statements, lost) if lost and repeat else lost


def release(
    session: Session,
    statements: Statements,
    key: Key,
    *,
    delay_us: int,
    spent: bool,
    error: str | None,
    exceptions: int,
) -> bool:
    """Put a current delivery back, due after the delay; true for a repeat too (S1)."""
    values = {
        "id": uuid(key.id),
        "token": blob(key.token),
        "state": State.SCHEDULED if delay_us else State.READY,
        "delay_us": delay_us,
        "unspent": 0 if spent else 1,
        "error": optional_text(error),
        "exceptions": exceptions,
    }
    if session.ask(statements[RELEASE] % values, commits=True)[0].affected:
        return True
    return _settled_by(session, statements, key) in {State.READY, State.SCHEDULED}


def fail(session: Session, statements: Statements, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a current delivery; true for a repeat too (S1)."""
    values = {
        "id": uuid(key.id),
        "token": blob(key.token),
        "error": optional_text(error),
        "exceptions": exceptions,
    }
    if session.ask(statements[FAIL] % values, commits=True)[0].affected:
        return True
    return _settled_by(session, statements, key) is State.FAILED


def _settled_by(session: Session, statements: Statements, key: Key) -> State | None:
    """The state of the row while it still keeps this token: a repeat finds its own outcome there."""
    rows = session.ask(statements[SETTLED_BY] % {"id": uuid(key.id), "token": blob(key.token)})[0].rows
    return State(int(rows[0][0])) if rows else None


def extend(session: OwnSession, statements: Statements, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """The deadlines of the current ones, moved forward unless somebody has the row locked (L5).

    What is current, and from when the lease counts, goes by one moment: between two a lease may run out, and a job that
    is reported lost would be kept from everybody for another lease.
    """
    if not keys:
        return []
    condition = {"current": current(keys, AT_MOMENT)}
    deadlines = statements[DEADLINES] % condition
    if lease_us <= 0:
        return _deadlines(keys, session.ask(f"{statements[MOMENT]}; {deadlines}")[1].rows, {})
    _, _, unlocked, known = session.ask(f"{statements[MOMENT]}; begin; {statements[UNLOCKED] % condition}; {deadlines}")
    moved: dict[bytes, int] = {}
    if unlocked.rows and known.rows:
        until_us = known.rows[0][0] + lease_us
        moved = {raw: max(at_us, until_us) for raw, at_us in unlocked.rows}
        session.ask(f"{statements[EXTEND] % {'until_us': until_us, 'ids': raw_ids(moved)}}; commit", commits=True)
    else:
        session.ask("commit")
    return _deadlines(keys, known.rows, moved)


def _deadlines(
    keys: Sequence[Key], known: Sequence[tuple[int, bytes, bytes, int]], moved: dict[bytes, int]
) -> list[int | None]:
    found = {Key(job_id(raw), token): moved.get(raw, at_us) for _, raw, token, at_us in known}
    return [found.get(key) for key in keys]


def hand_back(session: OwnSession, statements: Statements, keys: Sequence[Key]) -> None:
    """Make what never started ready again, in its old place (L8)."""
    if keys:
        session.ask(statements[HAND_BACK] % {"current": current(keys)}, commits=True)
