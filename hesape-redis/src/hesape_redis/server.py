"""What kind of server is behind a connection, and what it may lose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hesape.errors import StoreRefusedError
from hesape_redis.link import Link

_SYNC: Final = {
    "always": "a push that returned survives a crash of the server and a power cut",
    "everysec": (
        "a push that returned survives a crash of the server, except while an earlier write is still being synced; "
        "a power cut may cost the last second or two"
    ),
    "no": "a crash of the server may cost what it hadn't written yet, a power cut what the system hadn't",
}


def info(link: Link, section: str) -> Mapping[str, str]:
    """One section of what the server says about itself."""
    lines = link.ask("INFO", section).decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def product(link: Link) -> str:
    """Product and version."""
    found = info(link, "server")
    if version := found.get("valkey_version"):
        return f"Valkey {version}"
    return f"Redis {found.get('redis_version', 'of an unknown version')}"


def eviction(link: Link) -> str | None:
    """What is wrong with the server's eviction policy; `None` when it drops no keys."""
    policy = info(link, "memory").get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return None
    return f"maxmemory-policy is {policy}: a full server drops keys, and jobs with them; set it to noeviction"


def persistence(link: Link) -> str:
    """What the server's settings allow it to promise, in words."""
    found = info(link, "persistence")
    if found.get("aof_enabled") == "1":
        policy = _setting(link, "appendfsync")
        words = _SYNC.get(policy or "", "what a crash may cost depends on its appendfsync, which can't be read")
        text = f"append-only file, appendfsync {policy or 'unknown'}: {words}"
        if found.get("aof_last_write_status", "ok") != "ok":
            text += "; its last write failed"
        return text
    if _setting(link, "save") == "":
        return "no append-only file and no snapshots: a crash or a restart of the server loses every job"
    return "snapshots alone: a crash of the server loses every job since the last one; set appendonly yes"


def _setting(link: Link, name: str) -> str | None:
    """A setting, where the user may read it."""
    try:
        found = link.ask("CONFIG", "GET", name)
    except StoreRefusedError:
        return None
    values = list(found.values()) if isinstance(found, dict) else found[1:]
    return values[0].decode() if values else None
