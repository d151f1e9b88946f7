"""Low-water marks: from where on a queue has something to claim, in which snapshot.

A mark hides nothing. It says that of the rows that its snapshot could see none lay before it, and a marked claim finds
by their arrival those that the snapshot couldn't see (`claim_statements`). Ends of leases are the exception: one that
a slow claim committed behind the mark is seen when the mark for leases ends, after two seconds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from hesape_postgres.records import array

SLOW_S: Final = 0.005
"""From here on a plain claim is slow, apart from what it found. Two in a row in one queue begin its marks: one may have
had another reason."""
FOUND_S: Final = 0.00005
"""What a job may take that a claim found; the rest it spent in passing over others."""
WORSE: Final = 2
"""Marked claims so many times slower than the plain one before them, two in a row again, end the marks."""
SHORTEST_S: Final = 1.0
LONGEST_S: Final = 30.0
SCAN_SHARE: Final = 100
"""Between these marks live this many times as long as the claim took that passed over everything, and after one that
was no help there is none for so long."""
LEASES_S: Final = 2.0
_REMEMBERED: Final = 1_000
_LOWEST: Final = -(2**63)


class Mark(NamedTuple):
    """Where marked claims of one queue begin; as it stands, at the beginning."""

    priority: int = -32768
    due_us: int = _LOWEST
    seq: int = _LOWEST
    """These three of ready jobs."""
    ripe_us: int = _LOWEST
    """Of scheduled jobs."""
    lease_us: int = _LOWEST
    """Of ends of leases."""
    snapshot: str = "9223372036854775807:9223372036854775807:"
    """As the server writes one: which transactions it could see; as it stands, all."""
    server: int = 0
    """When the server began whose transactions those are."""
    until: float = 0.0
    """By the monotonic clock."""
    leases_until: float = 0.0
    plain_s: float = 0.0
    """How long the plain claim took that began it."""
    since: float = inf
    """When it was first learned."""
    slow: bool = False
    """Whether the claim before was slow for a marked one."""


_BEGINNING: Final = Mark()


class Marks:
    """The marks of one driver object's queues; threads share them."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._marks: dict[str, Mark] = {}
        self._slow: dict[str, float] = {}  # from when on another slow claim begins marks
        self._lock = threading.Lock()

    def starts(self, queues: Sequence[str], now: float) -> dict[str, str] | None:
        """Where to begin in each queue, as arrays; `None` for a plain claim."""
        if not self._marks:
            return None
        with self._lock:
            self._marks = {queue: self._renewed(mark, now) for queue, mark in self._marks.items() if mark.until > now}
            found = [self._marks.get(queue, _BEGINNING) for queue in queues]
        if not any(mark.until for mark in found):
            return None
        return {
            "priorities": array(str(mark.priority) for mark in found),
            "dues": array(str(mark.due_us) for mark in found),
            "seqs": array(str(mark.seq) for mark in found),
            "ripes": array(str(mark.ripe_us) for mark in found),
            "leases": array(str(mark.lease_us) for mark in found),
            "snapshots": array(f'"{mark.snapshot}"' for mark in found),
            "servers": array(str(mark.server) for mark in found),
        }

    def clocked(self, queues: Sequence[str], took_s: float, now: float) -> None:
        """A plain claim from these queues took so long."""
        with self._lock:
            if took_s < SLOW_S:
                for queue in queues:
                    if self._slow.get(queue, inf) <= now:
                        del self._slow[queue]
                return
            if len(self._slow) > _REMEMBERED:
                self._slow.clear()
            begun = _BEGINNING._replace(until=now + _life(took_s), plain_s=took_s)
            self._marks |= {queue: begun for queue in queues if self._slow.get(queue, inf) <= now}
            for queue in queues:
                self._slow.setdefault(queue, now)

    def learn(self, told: str, took_s: float, began: float, now: float) -> None:
        """Go on to where a marked claim said that rows begin, or end marks that are no help."""
        seen: Mapping[str, Any] = json.loads(told)
        with self._lock:
            for queue, (priority, due_us, seq, ripe_us, lease_us) in seen["queues"].items():
                known = self._marks.get(queue)
                if known is None:
                    continue
                # The first one, which began at no place yet, passed over everything
                slow = took_s > WORSE * known.plain_s and began >= known.since
                if slow and known.slow:
                    del self._marks[queue]
                    self._slow[queue] = now + _life(took_s)
                    continue
                self._marks[queue] = known._replace(
                    priority=priority,
                    due_us=due_us,
                    seq=seq,
                    ripe_us=ripe_us,
                    lease_us=lease_us,
                    snapshot=seen["snapshot"],
                    server=seen["server"],
                    since=min(known.since, now),
                    slow=slow,
                )

    def _renewed(self, mark: Mark, now: float) -> Mark:
        if mark.leases_until > now:
            return mark
        return mark._replace(lease_us=_LOWEST, leases_until=now + LEASES_S)


def _life(took_s: float) -> float:
    return min(max(SHORTEST_S, SCAN_SHARE * took_s), LONGEST_S)
