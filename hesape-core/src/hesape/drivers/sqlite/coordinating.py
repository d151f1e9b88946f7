"""Locks, counters and flags (K1)."""

from __future__ import annotations

from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.session import Session


def lock(session: Session, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own."""
    session.alone(sql.LOCK, lambda now_us: (key, owner, now_us + ttl_us, now_us))
    return bool(session.count)


def unlock(session: Session, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    session.alone(sql.UNLOCK, lambda now_us: (key, owner, now_us))
    return bool(session.count)


def increment(session: Session, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; its value and its end."""
    if by:

        def values(now_us: int) -> dict[str, object]:
            return {"key": key, "by": str(by), "end_us": now_us + ttl_us, "now_us": now_us}

        value, end_us = session.alone(sql.INCREMENT, values)[0]
        return value, end_us
    now_us = session.now()
    found = session.rows(sql.ENTRY, (key, now_us))
    return (int(found[0][0]), found[0][1]) if found else (0, now_us + ttl_us)


def read_flag(session: Session, key: str) -> str | None:
    """The value of a flag that is set."""
    found = session.rows(sql.ENTRY, (key, session.now()))
    return found[0][0] if found else None


def write_flag(session: Session, key: str, value: str, ttl_us: int | None) -> None:
    """Set a flag, for good without a time."""
    session.alone(sql.SET_FLAG, lambda now_us: (key, value, None if ttl_us is None else now_us + ttl_us))


def erase_flag(session: Session, key: str) -> None:
    """Remove a flag."""
    session.alone(sql.ERASE_FLAG, lambda _: (key,))
