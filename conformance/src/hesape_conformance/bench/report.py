"""What a run found: figures with what stands beside each, for people and for machines."""

from __future__ import annotations

import statistics
from typing import Any, Final, NamedTuple

import attrs


class Line(NamedTuple):
    """How a figure is shown."""

    name: str
    unit: str
    beside: str = ""
    """What stands beside it, measured in the same run."""
    digits: int = 0


LINES: Final = {
    "push": Line("push one by one", "jobs/s", "ceiling"),
    "bulk": Line("bulk, 1,000 a call", "jobs/s", "ceiling"),
    "drain": Line("drain, one process", "jobs/s", "ceiling"),
    "drain_two": Line("drain, two processes", "jobs/s", "one process"),
    "busy_two": Line("drain of 1 ms jobs, two processes", "jobs/s", "one process"),
    "p50": Line("pick-up latency, half", "ms", digits=2),
    "p99": Line("pick-up latency, 99 in 100", "ms", digits=2),
    "idle": Line("idle worker", "% of a core", digits=2),
    "pop_scheduled": Line("pop 1 among scheduled jobs", "ms", "without them", 2),
    "empty_scheduled": Line("empty pop among scheduled jobs", "ms", "without them", 2),
    "pop_failed": Line("pop 1 among failed jobs", "ms", "without them", 2),
    "empty_failed": Line("empty pop among failed jobs", "ms", "without them", 2),
    "snapshot": Line("drain under a held snapshot", "jobs/s", "without it"),
    "memory": Line("worker's memory after many jobs", "MiB", "after a tenth", 1),
    "recovery": Line("kill -9 until its job runs again", "s", digits=2),
    "trips_push": Line("one push", "", "ceiling", 3),
    "trips_bulk": Line("a job in bulk", "", "ceiling", 3),
    "trips_drain": Line("a drained job", "", "ceiling", 3),
}
"""Every figure, in the order in which they are shown. The trips' unit depends on the store."""


@attrs.define(kw_only=True)
class Figure:
    """The values of all rounds: ours, and what stands beside them."""

    key: str
    unit: str
    ours: list[float] = attrs.field(factory=list)
    beside: list[float] = attrs.field(factory=list)

    @property
    def line(self) -> Line:
        """How it is shown."""
        return LINES[self.key]

    @property
    def median(self) -> float:
        """Ours."""
        return statistics.median(self.ours)

    @property
    def median_beside(self) -> float | None:
        """What stands beside it."""
        return statistics.median(self.beside) if self.beside else None

    @property
    def ratio(self) -> float | None:
        """Ours as a part of what stands beside it."""
        return self.median / self.median_beside if self.median_beside else None

    def to_dict(self) -> dict[str, Any]:
        """For JSON; what is derived is in it, too."""
        return {
            **attrs.asdict(self),
            "name": self.line.name,
            "beside_is": self.line.beside,
            "median": self.median,
            "median_beside": self.median_beside,
            "ratio": self.ratio,
        }

    def row(self) -> tuple[str, str, str, str, str, str]:
        """Its line in the table: name, unit, ours, beside, ratio, range of ours."""
        digits = self.line.digits
        beside = f"{self.median_beside:,.{digits}f} ({self.line.beside})" if self.median_beside is not None else ""
        ratio = f"{self.ratio:.2f}" if self.ratio is not None else ""
        spread = f"{min(self.ours):,.{digits}f} to {max(self.ours):,.{digits}f}" if len(self.ours) > 1 else ""
        return self.line.name, self.unit, f"{self.median:,.{digits}f}", beside, ratio, spread


@attrs.define(kw_only=True)
class Report:
    """What a run found, or has found so far."""

    driver: str
    server: str
    durability: str
    machine: str
    versions: dict[str, str]
    size: dict[str, int]
    figures: list[Figure] = attrs.field(factory=list)
    ran: int = 0
    lost: int = 0
    doubled: int = 0
    problems: list[str] = attrs.field(factory=list)
    """What couldn't be measured, and why."""
    ceiling: str = ""
    """The source of the plain script."""
    started: str = ""
    took_s: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether nothing was lost or ran twice, and all could be measured."""
        return not (self.lost or self.doubled or self.problems)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = attrs.asdict(self, recurse=False)
        return {**found, "figures": [figure.to_dict() for figure in self.figures]}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Report:
        """As read from JSON."""
        names = {field.name for field in attrs.fields(Figure)}
        figures = [
            Figure(**{name: value for name, value in line.items() if name in names}) for line in found["figures"]
        ]
        return cls(**{**found, "figures": figures})

    def head(self) -> list[str]:
        """What was measured, on what."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        rounds = f"{self.size['rounds']} rounds, medians" if self.size["rounds"] != 1 else "1 round"
        return [
            f"{self.driver} on {self.server}; {self.durability}",
            f"{self.machine}; {versions}",
            f"{rounds}; {self.ran:,} jobs ran, {self.lost:,} lost, {self.doubled:,} doubled",
        ]

    def text(self) -> str:
        """For people."""
        rows = [("", "", "ours", "beside it", "ratio", "range of ours"), *(figure.row() for figure in self.figures)]
        name, unit, ours, beside, ratio, _ = (max(len(row[at]) for row in rows) for at in range(6))
        lines = [
            f"{row[0]:<{name}}  {row[2]:>{ours}} {row[1]:<{unit}}  {row[3]:>{beside}}  {row[4]:>{ratio}}  {row[5]}"
            for row in rows
        ]
        return "\n".join([*self.head(), "", *(line.rstrip() for line in lines), *(f"! {it}" for it in self.problems)])
