"""What kind of server is behind a connection, and what it may lose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hesape.errors import StoreRefusedError
from hesape.records import Finding
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


def eviction(link: Link) -> Finding:
    """Whether a full server drops keys."""
    policy = info(link, "memory").get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        return Finding(fine=True, text="maxmemory-policy is noeviction: a full server refuses pushes and drops nothing")
    text = f"maxmemory-policy is {policy}: a full server drops keys, and jobs with them; set it to noeviction"
    return Finding(fine=False, text=text)


def persistence(link: Link) -> Finding:
    """What the server's settings allow it to promise."""
    found = info(link, "persistence")
    if found.get("aof_enabled") == "1":
        policy = _setting(link, "appendfsync")
        words = _SYNC.get(policy or "", "what a crash may cost depends on its appendfsync, which can't be read")
        text = f"append-only file, appendfsync {policy or 'unknown'}: {words}"
        fine = policy in {"always", "everysec"}
        if found.get("aof_last_write_status", "ok") != "ok":
            fine, text = False, f"{text}; its last write failed"
        return Finding(fine=fine, text=text)
    if _setting(link, "save") == "":
        text = "no append-only file and no snapshots: a crash or a restart of the server loses every job"
    else:
        text = "snapshots alone: a crash of the server loses every job since the last one; set appendonly yes"
    return Finding(fine=False, text=text)


def _setting(link: Link, name: str) -> str | None:
    """A setting, where the user may read it."""
    try:
        found = link.ask("CONFIG", "GET", name)
    except StoreRefusedError:
        return None
    values = list(found.values()) if isinstance(found, dict) else found[1:]
    return values[0].decode() if values else None
