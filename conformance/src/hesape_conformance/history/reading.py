"""The reading side: files of events become one history, in the order of the clock."""

from __future__ import annotations

import json
from math import inf
from typing import TYPE_CHECKING, Any

import attrs

from hesape_conformance.history.model import Call, Delivery, History, Push, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

Event = dict[str, Any]


def read(folder: Path) -> History:
    """The history that the recorders of a folder wrote."""
    return replay(event for path in sorted(folder.glob("*.jsonl")) for event in _events(path))


def _events(path: Path) -> Iterable[Event]:
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):  # else its writer was killed in it
            yield json.loads(line)


def replay(events: Iterable[Event]) -> History:
    """The history of these events, in whatever order they are given."""
    reader = _Reader()
    for event in sorted(events, key=lambda event: float(event["at"])):
        reader.take(event)
    for deliveries in reader.history.deliveries.values():
        _order(deliveries)
    return reader.history


def _order(deliveries: list[Delivery]) -> None:
    """Put deliveries into the order in which the store may have given them out.

    A worker that was frozen between its question and its answer notes late what it had early: where the moments leave
    the order open, the number of the attempt decides.
    """
    for end in range(1, len(deliveries)):
        for at in range(end, 0, -1):
            one, other = deliveries[at - 1 : at + 1]
            if other.attempt >= one.attempt or other.asked > one.popped:
                break
            deliveries[at - 1 : at + 1] = other, one


class _Reader:
    def __init__(self) -> None:
        self.history = History()
        self._calls: dict[object, list[Call]] = {}
        self._open: dict[tuple[int, str, int], Delivery] = {}
        self._asked: dict[int, float] = {}
        self._takes: Mapping[str, Callable[[Event], None]] = {
            "push": self._push,
            "pushed": self._pushed,
            "starting": self._starting,
            "asking": self._asking,
            "popped": self._popped,
            "started": self._delivery,
            "settling": self._delivery,
            "settled": self._delivery,
            "stopped": self._stopped,
            "continued": self._continued,
            "away": self._away,
            "back": self._back,
            "cut": self._cut,
        }

    def take(self, event: Event) -> None:
        self._takes.get(event["what"], self._moment)(event)

    def _push(self, event: Event) -> None:
        for job, content in event["jobs"].items():
            push = self.history.pushes.setdefault(job, Push(job, content, float(event.get("delay_s", 0.0))))
            push.calls.append(Call(event["at"]))
            self._calls.setdefault(event["call"], []).append(push.calls[-1])

    def _pushed(self, event: Event) -> None:
        for call in self._calls.pop(event["call"]):
            call.returned, call.outcome = event["at"], event["outcome"]

    def _starting(self, event: Event) -> None:
        process = self.history.process(event["pid"])
        process.starting = event["at"]
        for fact in ("worker", "lease_s", "grace_s", "parent"):
            setattr(process, fact, event.get(fact, getattr(process, fact)))

    def _asking(self, event: Event) -> None:
        self._asked[event["pid"]] = event["at"]

    def _popped(self, event: Event) -> None:
        asked = self._asked.get(event["pid"], float(event["at"]))
        delivery = Delivery(event["job"], event["attempt"], event["pid"], asked, event["at"])
        self.history.deliveries.setdefault(event["job"], []).append(delivery)
        self._open[event["pid"], event["job"], event["attempt"]] = delivery

    def _delivery(self, event: Event) -> None:
        delivery = self._open[event["pid"], event["job"], event["attempt"]]
        setattr(delivery, event["what"], event["at"])
        for fact in ("content", "how", "delay_s", "outcome"):
            setattr(delivery, fact, event.get(fact, getattr(delivery, fact)))

    def _moment(self, event: Event) -> None:
        setattr(self.history.process(event["pid"]), event["what"], event["at"])

    def _stopped(self, event: Event) -> None:
        self.history.process(event["pid"]).frozen.append(Span(event["at"], inf, "frozen"))

    def _continued(self, event: Event) -> None:
        frozen = self.history.process(event["pid"]).frozen
        frozen[-1] = attrs.evolve(frozen[-1], end=event["at"])

    def _away(self, event: Event) -> None:
        self.history.troubles.append(Span(event["at"], inf, event.get("why", "outage")))

    def _back(self, event: Event) -> None:
        """End what is open and has the same name."""
        what, troubles = event.get("why", "outage"), self.history.troubles
        at = next(n for n, one in enumerate(troubles) if one.what == what and one.end == inf)
        troubles[at] = attrs.evolve(troubles[at], end=event["at"])

    def _cut(self, event: Event) -> None:
        self.history.troubles.append(Span(event["at"], event["at"], "cut"))
