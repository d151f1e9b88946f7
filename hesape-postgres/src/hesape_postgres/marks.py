"""Low-water marks: from where on a queue may hold something to claim.

While some transaction holds an old snapshot, the index keeps an entry for every job that was claimed, and each claim
passes over all of them. A claim that was slow remembers how far it came, and the next ones begin there. A mark could
hide a job that came before it, so it is short-lived, and dropped by whatever may have put one there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final, NamedTuple

from hesape.records import Row
from hesape_postgres.records import array

SLOW_S: Final = 0.005
SHORTEST_S: Final = 0.2
LONGEST_S: Final = 1.0
SCAN_SHARE: Final = 5
"""Between these a mark lives this many times as long as the scan that it saves took."""
OVERLAP_US: Final = 200_000
"""How far back due times and ends of leases are looked at again, for what was committed late."""
_QUEUE: Final = Row._fields.index("queue")
_PRIORITY: Final = Row._fields.index("priority")
_DUE: Final = Row._fields.index("due_us")


class Mark(NamedTuple):
    """Where the next claim begins."""

    priority: int = -32768
    due_us: int = 0
    floor_us: int = 0
    """What fell due, or whose lease ended, before this was promoted."""
    until: float = 0.0
    """By the monotonic clock."""


_LOWEST: Final = Mark()


class Marks:
    """The marks of one driver object's queues; threads share them."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._marks: dict[str, Mark] = {}
        self._slow: set[str] = set()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether there is a mark."""
        return bool(self._marks)

    def starts(self, queues: Sequence[str], now: float) -> dict[str, str]:
        """Where to begin in each queue, as arrays."""
        if not self._marks:
            found = [_LOWEST] * len(queues)
        else:
            with self._lock:
                self._marks = {queue: mark for queue, mark in self._marks.items() if mark.until > now}
                found = [self._marks.get(queue, _LOWEST) for queue in queues]
        return {
            "priorities": array(str(mark.priority) for mark in found),
            "dues": array(str(mark.due_us) for mark in found),
            "floors": array(str(mark.floor_us) for mark in found),
        }

    def learn(
        self,
        queues: Sequence[str],
        rows: Sequence[Sequence[Any]],
        *,
        full: bool,
        promoted: bool,
        now_us: int,
        started: float,
    ) -> bool:
        """Remember how far a full claim came, if it was slow; forget what may be wrong. Whether there is a new mark.

        `rows` are in the order of the claim, in the columns of a `Row`; `now_us` is the store's clock at the claim.
        """
        if promoted or not full:
            self.drop(queues)
            return False
        took_s = monotonic() - started
        last = rows[-1]
        with self._lock:
            known = self._marks.get(last[_QUEUE])
            if known is None and not self._is_slow(last[_QUEUE], took_s):
                return False
            lives_s = min(max(SHORTEST_S, SCAN_SHARE * took_s), LONGEST_S)
            until = known.until if known else started + took_s + lives_s
            self._marks[last[_QUEUE]] = Mark(last[_PRIORITY], last[_DUE], now_us - OVERLAP_US, until)
        return known is None

    def _is_slow(self, queue: str, took_s: float) -> bool:
        """Whether claims from a queue are slow: the first one may have had another reason."""
        if took_s < SLOW_S:
            self._slow.discard(queue)
            return False
        if queue in self._slow:
            return True
        self._slow.add(queue)
        return False

    def came(self, queue: str, priority: int | None, delay_us: int = 0) -> None:
        """A job came: before the mark by its priority (`None`: perhaps), or, due later, before the floor."""
        if self._marks:
            with self._lock:
                mark = self._marks.get(queue)
                if mark is None:
                    return
                if delay_us > 0:
                    self._marks[queue] = mark._replace(floor_us=0)
                elif priority is None or priority < mark.priority:
                    del self._marks[queue]

    def drop(self, queues: Iterable[str]) -> None:
        """A job may have come anywhere in these queues."""
        for queue in queues:
            self.came(queue, None)
