"""The checker: what a history and the store's last state say against the contract.

A job that was accepted must be finished, or wait in the store; it must be what was pushed, not before its time, and in
one worker's hands at a time. A second delivery needs a reason that somebody noted: its worker put it back, died, was
frozen, ran out of grace, or the store was away. Moments are compared on the side of doubt: what was noted after a claim
may have happened just before, what was noted before a call may have happened just after.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from hesape_conformance.history.model import Delivery, History, Process, Push

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCKS_S: Final = 0.1
"""How far a store's clock and the machine's may drift apart during a delay."""


class Kind(StrEnum):
    """What a history must not hold."""

    LOST = "lost"
    """Accepted, never finished, and no longer in the store."""
    INVENTED = "invented"
    """Delivered, though nobody pushed it or its push was surely refused."""
    ALTERED = "altered"
    """Delivered with other content than it was pushed with."""
    DOUBLE_LEASED = "double-leased"
    """Given to a second worker while the first was at work, alive and in touch with the store."""
    EARLY = "early"
    """Delivered before it was due, or again without a reason."""
    RESURRECTED = "resurrected"
    """Delivered, or in the store, after the store had accepted its end."""
    STALE = "settled by a stale worker"
    """A settlement was accepted though another worker had the job by then."""
    LEFT = "left behind"
    """In the store at the end, though workers had time to take it."""
    PARKED = "parked"
    """On the failed list, though no handler asked for it."""
    DIED = "died"
    """A worker process that ended neither by itself nor by a signal that was noted."""


@attrs.frozen
class Violation:
    """One fault of a history."""

    kind: Kind
    job: str
    """The job's id; empty: it isn't about one."""
    detail: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.kind}: {self.job + ': ' if self.job else ''}{self.detail}"


@attrs.define
class Verdict:
    """What a history came to."""

    violations: list[Violation] = attrs.field(factory=list)
    pushed: int = 0
    """Jobs that the store accepted, or may have."""
    refused: int = 0
    """Calls that were surely not stored."""
    unknown: int = 0
    """Calls of unknown outcome."""
    delivered: int = 0
    """Handlers that began."""
    put_back: int = 0
    """Deliveries that their worker put back as it meant to: released, or raised."""
    duplicates: Counter[str] = attrs.field(factory=Counter)
    """Further deliveries of a job whose handler had begun, by the reason."""
    stale_attempts: int = 0
    """Settlements that the store refused because the delivery was no longer current."""
    kills_that_hit: int = 0
    """Processes killed while a handler ran in them."""
    redelivered_s: list[float] = attrs.field(factory=list)
    """From each such kill to the next delivery of each job that it hit, sorted."""

    def count(self, kind: Kind) -> int:
        """How many violations of a kind."""
        return sum(violation.kind is kind for violation in self.violations)

    def percentile(self, part: float) -> float | None:
        """Of the times to redelivery; `None` without any."""
        found = self.redelivered_s
        return found[min(int(len(found) * part), len(found) - 1)] if found else None


def check(history: History, left: Mapping[str, str]) -> Verdict:
    """Judge a history. `left` is what the store holds at its end: job ids, each with its state as in `RawRow`."""
    verdict = Verdict()
    checker = _Checker(history, left, verdict)
    checker.count()
    for job in {**history.pushes, **history.deliveries, **dict.fromkeys(left)}:
        checker.job(job)
    for process in history.processes.values():
        checker.process(process)
    verdict.redelivered_s.sort()
    return verdict


class _Checker:
    def __init__(self, history: History, left: Mapping[str, str], verdict: Verdict) -> None:
        self._history = history
        self._left = left
        self._verdict = verdict

    def _fault(self, kind: Kind, job: str, detail: str) -> None:
        self._verdict.violations.append(Violation(kind, job, detail))

    def count(self) -> None:
        verdict = self._verdict
        pushes = self._history.pushes.values()
        calls = Counter(call.outcome for push in pushes for call in push.calls)
        verdict.pushed = sum(not push.surely_refused for push in pushes)
        verdict.refused, verdict.unknown = calls["refused"], calls["unknown"] + calls[""]
        everything = [one for deliveries in self._history.deliveries.values() for one in deliveries]
        verdict.delivered = sum(one.started < inf for one in everything)
        verdict.put_back = sum(one.accepted and not one.ended_job for one in everything)
        verdict.stale_attempts = sum(bool(one.how) and one.outcome == "lost" for one in everything)

    # Processes.

    def process(self, process: Process) -> None:
        if process.starting < inf and process.killed == inf and process.stopping == inf:
            self._fault(Kind.DIED, "", f"worker process {process.pid} ({process.worker}) ended without a word")
        if process.killed == inf:
            return
        hit = [
            one
            for deliveries in self._history.deliveries.values()
            for one in deliveries
            if one.pid == process.pid and one.running_at(process.killed)
        ]
        self._verdict.kills_that_hit += bool(hit)
        for one in hit:
            again = [other.popped for other in self._history.deliveries[one.job] if other.popped > process.killed]
            self._verdict.redelivered_s += [min(again) - process.killed] if again else []

    # Jobs.

    def job(self, job: str) -> None:
        push = self._history.pushes.get(job)
        deliveries = self._history.deliveries.get(job, [])
        self._end_of(job, push, deliveries)
        if push is None or push.surely_refused:
            if deliveries or job in self._left:
                self._fault(Kind.INVENTED, job, "nobody pushed it" if push is None else "its push was refused")
            return
        for one in deliveries:
            if one.content and one.content != push.content:
                self._fault(Kind.ALTERED, job, f"{_told(one)} had content {one.content}, pushed was {push.content}")
        if deliveries:
            self._due(job, push.calls[0].invoked + push.delay_s, deliveries[0], "was pushed for")
        for at, one in enumerate(deliveries):
            self._after(push, one, deliveries[at + 1 :])

    def _end_of(self, job: str, push: Push | None, deliveries: list[Delivery]) -> None:
        """What became of it in the end."""
        state = self._left.get(job)
        ends = [one for one in deliveries if one.ended_job]
        if state is not None and state != "failed":
            again = push is not None and any(not push.open_after(one.settling) for one in ends)
            self._fault(Kind.RESURRECTED if again else Kind.LEFT, job, f"it is {state} in the store at the end")
            return
        asked_to_park = any(one.how == "park" for one in deliveries)
        if state == "failed":
            if not asked_to_park:
                self._fault(Kind.PARKED, job, "it is on the failed list, and no handler wanted that")
            return
        finished = any(one.how == "delete" and one.outcome != "released" for one in deliveries)
        if not finished and (deliveries or (push is not None and push.accepted)):
            was = f"its last delivery: {_told(deliveries[-1])}" if deliveries else "it was never delivered"
            self._fault(Kind.LOST, job, f"it isn't in the store, and no handler finished it; {was}")

    def _due(self, job: str, due: float, one: Delivery, what: str) -> None:
        if one.popped < due - CLOCKS_S:
            self._fault(Kind.EARLY, job, f"{_told(one)}, {due - one.popped:.3f} s before the moment that it {what}")

    def _after(self, push: Push, one: Delivery, later: list[Delivery]) -> None:
        """What may follow a delivery."""
        if one.ended_job:
            for other in later:
                self._after_end(push, one, other)
        elif one.accepted:
            self._after_release(one, later)
        elif later:
            self._after_loss(one, later[0])

    def _after_end(self, push: Push, one: Delivery, other: Delivery) -> None:
        if push.open_after(one.settling):  # I2: a repeated push may store again what was settled meanwhile
            self._repeated(one, other, "push repeated")
        elif other.popped > one.settled:
            self._fault(Kind.RESURRECTED, one.job, f"{_told(other)}, after {_told(one)}")
        elif not self._history.troubled(one.settling, one.settled):  # S5: absent counts as deleted by an unsure repeat
            self._fault(Kind.STALE, one.job, f"{_told(one)}, though {_told(other)}")

    def _after_release(self, one: Delivery, later: list[Delivery]) -> None:
        if later and later[0].popped > one.settling:
            self._due(one.job, one.settling + one.delay_s, later[0], "was released for")
        elif later:
            self._fault(Kind.STALE, one.job, f"{_told(one)}, though {_told(later[0])}")

    def _after_loss(self, one: Delivery, other: Delivery) -> None:
        cause = self._cause(one, other.popped)
        if cause:
            self._repeated(one, other, cause)
        elif one.running_at(other.popped):
            self._fault(Kind.DOUBLE_LEASED, one.job, f"{_told(other)}, while {_told(one)}")
        elif one.started < inf:
            self._fault(Kind.EARLY, one.job, f"{_told(other)} without a reason, after {_told(one)}")

    def _repeated(self, one: Delivery, other: Delivery, cause: str) -> None:
        if one.started < inf and other.started < inf:
            self._verdict.duplicates[cause] += 1

    def _cause(self, one: Delivery, moment: float) -> str:
        """Why a delivery may have been over at a moment, though it wasn't settled; empty: it may not."""
        process = self._history.process(one.pid)
        if process.killed <= moment:
            return "killed"
        for span in process.frozen:
            lasted = min(span.end, moment) - span.begin
            if (
                span.overlaps(one.asked, moment) and lasted >= process.lease_s / 4
            ):  # leases are renewed when half is over
                return "frozen"
        if trouble := self._history.troubled(one.asked, moment):
            return trouble
        asked = self._history.stop_asked(one.pid)
        if process.stopping <= moment or moment >= asked + process.grace_s - CLOCKS_S:
            return "grace over"
        return ""


def _told(one: Delivery) -> str:
    said = f"process {one.pid} had attempt {one.attempt} at {one.popped:.3f}"
    if one.started < inf:
        said += f", began {one.started:.3f}"
    if one.how:
        said += f", asked to {one.how} at {one.settling:.3f}"
    return said + (f": {one.outcome} at {one.settled:.3f}" if one.outcome else "")
