"""A line of jobs, first by first, from which one can also leave in the middle."""

from __future__ import annotations

import heapq
from typing import Final

Place = tuple[int, ...]
"""Where a job stands; no two jobs of a line have equal places."""

_TIDY: Final = 64
"""Below this many leftovers a line isn't made anew."""


class Line:
    """Ids in the order of their places. Who leaves in the middle leaves an entry behind, dropped when it comes up."""

    __slots__ = ("_heap", "_places")

    def __init__(self) -> None:
        """Begin an empty line."""
        self._heap: list[tuple[Place, str]] = []
        self._places: dict[str, Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._places

    def places(self) -> list[Place]:
        """Every place that is taken, in no order."""
        return list(self._places.values())

    def put(self, job_id: str, place: Place) -> None:
        """Let `job_id` stand at `place`, wherever it stood before."""
        self._places[job_id] = place
        heapq.heappush(self._heap, (place, job_id))
        self._tidy()

    def leave(self, job_id: str) -> None:
        """Take `job_id` out, if it is in line."""
        if self._places.pop(job_id, None) is not None:
            self._tidy()

    def first(self) -> Place | None:
        """The first place that is taken."""
        heap = self._heap
        while heap:
            place, job_id = heap[0]
            if self._places.get(job_id) == place:
                return place
            heapq.heappop(heap)
        return None

    def take(self) -> str | None:
        """Take out whoever is first."""
        if self.first() is None:
            return None
        _, job_id = heapq.heappop(self._heap)
        del self._places[job_id]
        return job_id

    def take_until(self, until: int, most: int) -> list[str]:
        """Take out up to `most` whose place begins with at most `until`, in order."""
        taken: list[str] = []
        while len(taken) < most:
            place = self.first()
            if place is None or place[0] > until:
                break
            job_id = self.take()
            assert job_id is not None  # noqa: S101 - first() saw it
            taken.append(job_id)
        return taken

    def _tidy(self) -> None:
        if len(self._heap) > _TIDY and len(self._heap) > 2 * len(self._places):
            self._heap = [(place, job_id) for job_id, place in self._places.items()]
            heapq.heapify(self._heap)
