"""Locks, counters and flags, atomic and expiring by the store's clock (K1). Each is one round trip."""

from __future__ import annotations

from hesape_mysql.pool import OwnSession
from hesape_mysql.records import NEVER_US, blob
from hesape_mysql.statements import (
    COUNTED,
    COUNTER,
    ERASE_FLAG,
    HOLDS,
    INCREMENT,
    LOCK,
    NOW,
    READ_FLAG,
    UNLOCK,
    WRITE_FLAG,
    Statements,
)


def lock(session: OwnSession, statements: Statements, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own."""
    values = {"key": blob(key), "owner": blob(owner), "ttl_us": ttl_us}
    held = session.ask(f"{statements[LOCK] % values}; {statements[HOLDS] % values}", commits=True)[1].rows
    return bool(held and held[0][0])


def unlock(session: OwnSession, statements: Statements, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    return bool(session.ask(statements[UNLOCK] % {"key": blob(key), "owner": blob(owner)}, commits=True)[0].affected)


def increment(session: OwnSession, statements: Statements, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; its value and its end."""
    values = {"key": blob(key), "by": by, "ttl_us": ttl_us}
    look = statements[COUNTER] % values
    if by:
        counted = statements[COUNTED] % values
        rows = session.ask(f"begin; {statements[INCREMENT] % values}; {counted}; commit", commits=True)[2].rows
        return rows[0][0], rows[0][1]
    known, clock = session.ask(f"{look}; select {NOW}")
    return (known.rows[0][0], known.rows[0][1]) if known.rows else (0, clock.rows[0][0] + ttl_us)


def read_flag(session: OwnSession, statements: Statements, key: str) -> str | None:
    """The value of a flag that is set."""
    rows = session.ask(statements[READ_FLAG] % {"key": blob(key)})[0].rows
    return bytes(rows[0][0]).decode() if rows else None


def write_flag(session: OwnSession, statements: Statements, key: str, value: str, ttl_us: int | None) -> None:
    """Set a flag, for good without a time."""
    end = str(NEVER_US) if ttl_us is None else f"{NOW} + {ttl_us}"
    session.ask(statements[WRITE_FLAG] % {"key": blob(key), "value": blob(value), "end_us": end}, commits=True)


def erase_flag(session: OwnSession, statements: Statements, key: str) -> None:
    """Remove a flag."""
    session.ask(statements[ERASE_FLAG] % {"key": blob(key)}, commits=True)
