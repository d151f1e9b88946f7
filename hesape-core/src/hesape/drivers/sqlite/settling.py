"""Ending deliveries, each only while it is current (L4, S1, S3)."""

from __future__ import annotations

from collections.abc import Sequence

from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.records import READY, SCHEDULED, to_blob
from hesape.drivers.sqlite.session import Session
from hesape.records import Key


def delete(session: Session, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete deliveries in a transaction of their own; those that were lost."""
    if len(keys) == 1:
        session.alone(sql.DELETE, lambda now_us: (to_blob(keys[0].id), keys[0].token, now_us))
        return [] if session.count or (repeat and _absent(session, keys[0])) else list(keys)
    if keys:
        session.begin()
    return delete_done(session, keys, repeat=repeat)


def delete_done(session: Session, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete deliveries at the beginning of a transaction; only when some were lost one by one, to tell which."""
    if not keys:
        return []
    now_us = session.now()
    if session.many(sql.DELETE, [(to_blob(key.id), key.token, now_us) for key in keys]) == len(keys):
        return []
    session.back()
    session.begin()
    return delete_each(session, keys, repeat=repeat)


def delete_each(session: Session, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete deliveries one by one inside a transaction; those that were lost, with `repeat` not the absent (S5)."""
    now_us = session.now()

    def is_lost(key: Key) -> bool:
        deleted = session.run(sql.DELETE, (to_blob(key.id), key.token, now_us))
        return not deleted and not (repeat and _absent(session, key))

    return [key for key in keys if is_lost(key)]


def _absent(session: Session, key: Key) -> bool:
    return not session.rows(sql.EXISTS, (to_blob(key.id),))


def release(session: Session, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int) -> bool:
    """Put a delivery back; true also when it is back under this token already."""
    blob, back = to_blob(key.id), 0 if spent else 1

    def values(now_us: int) -> tuple[object, ...]:
        state = SCHEDULED if delay_us > 0 else READY
        return state, now_us + delay_us, back, error, exceptions, blob, key.token, now_us

    session.alone(sql.RELEASE, values)
    return bool(session.count) or bool(session.rows(sql.RELEASED, (blob, key.token)))


def fail(session: Session, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a delivery; true also when it is parked under this token already."""
    blob = to_blob(key.id)
    session.alone(sql.FAIL, lambda now_us: (now_us, error, exceptions, blob, key.token, now_us))
    return bool(session.count) or bool(session.rows(sql.FAILED_UNDER, (blob, key.token)))


def extend(session: Session, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """Move deadlines forward, never back (L5); a lease of 0 only looks."""
    if lease_us > 0:
        session.begin()
    now_us = session.now()
    deadlines: list[int | None] = []
    for key in keys:
        current = (to_blob(key.id), key.token, now_us)
        if lease_us > 0:
            found = session.rows(sql.EXTEND, (now_us + lease_us, *current))
        else:
            found = session.rows(sql.DEADLINE, current)
        deadlines.append(found[0][0] if found else None)
    return deadlines


def hand_back(session: Session, keys: Sequence[Key]) -> None:
    """Make deliveries that never started ready again in their old place (L8)."""
    session.begin()
    now_us = session.now()
    session.many(sql.HAND_BACK, [(to_blob(key.id), key.token, now_us) for key in keys])
