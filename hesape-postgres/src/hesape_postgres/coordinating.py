"""Locks, counters and flags (K1)."""

from __future__ import annotations

from hesape_postgres import statements
from hesape_postgres.link import Link


def lock(link: Link, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own."""
    return bool(link.rows(statements.LOCK, {"key": key, "owner": link.text.put(owner), "ttl": ttl_us}))


def unlock(link: Link, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    return bool(link.rows(statements.UNLOCK, {"key": key, "owner": link.text.put(owner)}))


def increment(link: Link, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; its value and its end."""
    params = {"key": key, "by": by, "ttl": ttl_us}
    if by == 0:
        value, end_us = link.look(statements.LOOK_COUNT, params)[0]
    else:
        value, end_us = link.rows(statements.INCREMENT, params)[0]
    return value, end_us


def read_flag(link: Link, key: str) -> str | None:
    """The value of a flag that is set."""
    found = link.look(statements.READ_FLAG, {"key": key})
    return link.text.get(found[0][0]) if found else None


def write_flag(link: Link, key: str, value: str, ttl_us: int | None) -> None:
    """Set a flag, for good without a time."""
    link.count(statements.WRITE_FLAG, {"key": key, "owner": link.text.put(value), "ttl": ttl_us})


def erase_flag(link: Link, key: str) -> None:
    """Remove a flag."""
    link.count(statements.ERASE_FLAG, {"key": key})
