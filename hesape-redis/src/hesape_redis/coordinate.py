"""Locks, counters and flags (K1)."""

from __future__ import annotations

from hesape_redis.link import Link
from hesape_redis.scripts import ALL


def lock(link: Link, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own."""
    return bool(link.run(ALL["lock"], key, owner, ttl_us))


def unlock(link: Link, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    return bool(link.run(ALL["unlock"], key, owner))


def increment(link: Link, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; its value and its end."""
    value, end_us = link.run(ALL["increment"], key, by, ttl_us)
    return int(value), int(end_us)


def read_flag(link: Link, key: str) -> str | None:
    """The value of a flag that is set."""
    value = link.run(ALL["read_flag"], key)
    return None if value is None else value.decode()


def write_flag(link: Link, key: str, value: str, ttl_us: int | None) -> None:
    """Set a flag, for good without a time."""
    link.run(ALL["write_flag"], key, value, *(() if ttl_us is None else (ttl_us,)))
