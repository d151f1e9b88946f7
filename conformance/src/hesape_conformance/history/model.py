"""A history as values: pushes, deliveries, processes, and what happened to them."""

from __future__ import annotations

from math import inf

import attrs

ENDINGS = frozenset({"processed", "settled", "failed", "released"})
"""Outcomes that say: the store has accepted the settlement."""


@attrs.frozen
class Span:
    """Something lasted; `end` is infinite while it does."""

    begin: float
    end: float = inf
    what: str = ""

    def overlaps(self, begin: float, end: float) -> bool:
        """Whether it shares a moment with another span."""
        return self.begin <= end and begin <= self.end


@attrs.define
class Call:
    """One call that pushed a job."""

    invoked: float
    returned: float = inf
    outcome: str = ""
    """`ok`, `refused` (surely not stored), `unknown`; empty: its process died in it."""


@attrs.define
class Push:
    """A job as its pusher wanted it, and the calls that were made for it."""

    job: str
    content: str
    delay_s: float
    calls: list[Call] = attrs.field(factory=list)

    @property
    def accepted(self) -> bool:
        """Whether the store took it."""
        return any(call.outcome == "ok" for call in self.calls)

    @property
    def surely_refused(self) -> bool:
        """Whether it can't be in the store."""
        return all(call.outcome == "refused" for call in self.calls)

    def open_after(self, moment: float) -> bool:
        """Whether a call may have stored it after `moment`."""
        return any(call.returned > moment for call in self.calls if call.outcome != "refused")


@attrs.define
class Delivery:
    """One delivery, as its worker saw it. Moments that never came are infinite."""

    job: str
    attempt: int
    pid: int
    asked: float
    """When its worker asked for jobs: the store gave it out between this and `popped`."""
    popped: float
    started: float = inf
    content: str = ""
    settling: float = inf
    how: str = ""
    """What its worker asked for: `delete`, `release`, `park`."""
    delay_s: float = 0.0
    settled: float = inf
    outcome: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the store accepted its settlement."""
        return bool(self.how) and self.outcome in ENDINGS

    @property
    def ended_job(self) -> bool:
        """Whether the store accepted that this was the last delivery.

        One that its handler couldn't end is put back by its worker.
        """
        return self.accepted and self.how in {"delete", "park"} and self.outcome != "released"

    def running_at(self, moment: float) -> bool:
        """Whether its handler was at work, as far as anybody knows."""
        return self.started < inf and self.settling > moment


@attrs.define
class Process:
    """A worker process, or its supervisor."""

    pid: int
    starting: float = inf
    worker: str = ""
    lease_s: float = 60.0
    grace_s: float = 25.0
    parent: int = 0
    killed: float = inf
    asked: float = inf
    """When it was asked to stop."""
    stopping: float = inf
    frozen: list[Span] = attrs.field(factory=list)


@attrs.define
class History:
    """Everything that was noted."""

    pushes: dict[str, Push] = attrs.field(factory=dict)
    deliveries: dict[str, list[Delivery]] = attrs.field(factory=dict)
    """Of each job, in the order in which they were had."""
    processes: dict[int, Process] = attrs.field(factory=dict)
    troubles: list[Span] = attrs.field(factory=list)
    """When the store was away, or its sessions were cut."""

    def process(self, pid: int) -> Process:
        """The process of an id."""
        return self.processes.setdefault(pid, Process(pid))

    def stop_asked(self, pid: int) -> float:
        """When a worker learned that it must stop: it was asked, or its supervisor was asked or died."""
        process = self.process(pid)
        parent = self.processes.get(process.parent)
        return min(process.asked, *((parent.asked, parent.killed) if parent else (inf,)))

    def troubled(self, begin: float, end: float) -> str:
        """What was wrong with the store at a moment of this span; empty: nothing."""
        return next((trouble.what for trouble in self.troubles if trouble.overlaps(begin, end)), "")
