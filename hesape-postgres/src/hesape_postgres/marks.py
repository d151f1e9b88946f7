"""Low-water marks: from where on a queue has something to claim, in which snapshot.

A mark hides nothing. It says that of the rows that its snapshot could see none lay before it, and a marked claim finds
by their arrival those that the snapshot couldn't see (`claim_statements`). Ends of leases are the exception: one that
a slow claim committed behind the mark is seen when the mark for leases ends, after two seconds.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from hesape_postgres.records import array

SLOW_S: Final = 0.005
"""From here on a plain claim is slow. Two in a row in one queue begin its marks: one may have had another reason."""
SHORTEST_S: Final = 1.0
LONGEST_S: Final = 30.0
SCAN_SHARE: Final = 100
"""Between these marks live this many times as long as the claim took that passed over everything."""
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


_BEGINNING: Final = Mark()


class Marks:
    """The marks of one driver object's queues; threads share them."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._marks: dict[str, Mark] = {}
        self._slow: set[str] = set()
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
                self._slow.difference_update(queues)
                return
            if len(self._slow) > _REMEMBERED:
                self._slow.clear()
            until = now + min(max(SHORTEST_S, SCAN_SHARE * took_s), LONGEST_S)
            self._marks |= {queue: _BEGINNING._replace(until=until) for queue in queues if queue in self._slow}
            self._slow.update(queues)

    def learn(self, told: str) -> None:
        """Go on to where a marked claim said that rows begin."""
        seen: Mapping[str, Any] = json.loads(told)
        with self._lock:
            for queue, (priority, due_us, seq, ripe_us, lease_us) in seen["queues"].items():
                known = self._marks.get(queue)
                if known is not None:
                    self._marks[queue] = known._replace(
                        priority=priority,
                        due_us=due_us,
                        seq=seq,
                        ripe_us=ripe_us,
                        lease_us=lease_us,
                        snapshot=seen["snapshot"],
                        server=seen["server"],
                    )

    def _renewed(self, mark: Mark, now: float) -> Mark:
        if mark.leases_until > now:
            return mark
        return mark._replace(lease_us=_LOWEST, leases_until=now + LEASES_S)
