"""Locks, counters and flags on the store in memory (K1). The caller holds the lock."""

from __future__ import annotations

from hesape.drivers.memory.records import Entry
from hesape.drivers.memory.store import Store


def lock(store: Store, key: str, owner: str, ttl_us: int) -> bool:
    """Take a free or expired lock, or renew one's own."""
    now_us = store.clock()
    held = store.entry(key, now_us)
    if held is not None and held.value != owner:
        return False
    store.entries[key] = Entry(owner, now_us + ttl_us)
    return True


def unlock(store: Store, key: str, owner: str) -> bool:
    """Free a lock that `owner` holds."""
    held = store.entry(key, store.clock())
    if held is None or held.value != owner:
        return False
    del store.entries[key]
    return True


def increment(store: Store, key: str, by: int, ttl_us: int) -> tuple[int, int]:
    """Add to a counter that lives from its first increment on; its value and its end."""
    now_us = store.clock()
    held = store.entry(key, now_us)
    value = by + (0 if held is None else int(held.value))
    end_us = now_us + ttl_us if held is None or held.end_us is None else held.end_us
    if by:
        store.entries[key] = Entry(str(value), end_us)
    return value, end_us


def read_flag(store: Store, key: str) -> str | None:
    """The value of a flag that is set."""
    held = store.entry(key, store.clock())
    return None if held is None else held.value


def write_flag(store: Store, key: str, value: str, ttl_us: int | None) -> None:
    """Set a flag, for good without a time."""
    store.entries[key] = Entry(value, None if ttl_us is None else store.clock() + ttl_us)
