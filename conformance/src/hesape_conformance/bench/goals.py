"""Which goals a report reaches. Goals are data: what is measured, against what, and how much of it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import attrs

from hesape_conformance.bench.report import LINES, Report

BESIDE: Final = "beside"
BEST_PEER: Final = "best peer"

Peers = Mapping[str, Mapping[str, Mapping[str, float]]]
"""By store, and by library (ours is `hesape`): the median of each figure, and `lost` and `doubled`; all of one run."""
OURS: Final = "hesape"


class Verdict(StrEnum):
    """What a goal came to."""

    REACHED = "reached"
    NOT_REACHED = "not reached"
    NOT_MEASURED = "not measured"


@attrs.frozen(kw_only=True)
class Goal:
    """One line of the file of goals."""

    figure: str = attrs.field(validator=attrs.validators.in_(LINES))
    of: str = ""
    """What it is compared with: `beside`, `best peer`, or a library; empty: nothing, ours in its unit."""
    at_least: float | None = None
    at_most: float | None = None
    stores: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    """Empty: every store."""
    needs: Mapping[str, int] = attrs.field(factory=dict)
    """The size below which a run doesn't decide it."""

    def __attrs_post_init__(self) -> None:
        """Refuse a goal without a limit, or with two, and of other libraries what their runs don't tell."""
        if (self.at_least is None) == (self.at_most is None):
            message = f"the goal for {self.figure!r} has at_least {self.at_least} and at_most {self.at_most}: give one"
            raise ValueError(message)
        if self.of not in {"", BESIDE} and (self.at_least is None or self.needs):
            message = (
                f"the goal for {self.figure!r} of {self.of!r} has at_most {self.at_most} and needs {dict(self.needs)}:"
                " the fastest library is the one with most jobs a second, in runs of a size of their own, so give"
                " at_least alone"
            )
            raise ValueError(message)

    def reached(self, value: float) -> bool:
        """Whether this much is enough, or little enough."""
        if self.at_least is not None:
            return value >= self.at_least
        return self.at_most is not None and value <= self.at_most

    @property
    def wanted(self) -> str:
        """As a person says it."""
        limit = f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"
        line = LINES[self.figure]
        return f"{limit} times {line.beside if self.of == BESIDE else self.of}" if self.of else f"{limit} {line.unit}"


class Judgement(NamedTuple):
    """What a goal came to on one store."""

    store: str
    figure: str
    wanted: str
    measured: float | None
    verdict: Verdict
    why: str = ""
    """Why it wasn't measured, or not all of it."""


def load(path: Path) -> list[Goal]:
    """The goals of a file."""
    return [Goal(**line) for line in tomllib.loads(path.read_text(encoding="utf-8"))["goal"]]


def judge(goals: Iterable[Goal], reports: Iterable[Report], peers: Peers) -> list[Judgement]:
    """Every goal on every store that has it."""
    wanted = list(goals)
    return [
        judgement
        for report in reports
        for judgement in (
            *(_judged(goal, report, peers) for goal in wanted if not goal.stores or report.driver in goal.stores),
            _nothing_lost(report, peers.get(report.driver, {})),
        )
    ]


def _judged(goal: Goal, report: Report, peers: Peers) -> Judgement:
    measured, why = _measured(goal, report, peers.get(report.driver, {}))
    verdict = Verdict.NOT_MEASURED
    if measured is not None and not why:
        verdict = Verdict.REACHED if goal.reached(measured) else Verdict.NOT_REACHED
    return Judgement(report.driver, LINES[goal.figure].name, goal.wanted, measured, verdict, why)


def _measured(goal: Goal, report: Report, peers: Mapping[str, Mapping[str, float]]) -> tuple[float | None, str]:
    if goal.of not in {"", BESIDE}:
        return _against(goal, peers)
    small = [
        f"{name} {report.size[name]:,} of {size:,}" for name, size in goal.needs.items() if report.size[name] < size
    ]
    figure = next((figure for figure in report.figures if figure.key == goal.figure), None)
    if figure is None:
        return None, "no such figure in the report"
    return (figure.ratio if goal.of else figure.median), ", ".join(small)


def _against(goal: Goal, peers: Mapping[str, Mapping[str, float]]) -> tuple[float | None, str]:
    ours = peers.get(OURS, {}).get(goal.figure)
    theirs = {name: found[goal.figure] for name, found in peers.items() if name != OURS and goal.figure in found}
    if goal.of != BEST_PEER:
        theirs = {name: value for name, value in theirs.items() if name == goal.of}
    if ours is None or not theirs:
        return None, "no run beside it"
    return ours / max(theirs.values()), ""


def _nothing_lost(report: Report, peers: Mapping[str, Mapping[str, float]]) -> Judgement:
    ours = peers.get(OURS, {})
    lost = report.lost + report.doubled + ours.get("lost", 0.0) + ours.get("doubled", 0.0)
    why = "" if report.ran else "no job ran"
    if report.problems:
        why = f"steps that failed: {len(report.problems)}"
    verdict = Verdict.NOT_REACHED if lost else Verdict.NOT_MEASURED if why else Verdict.REACHED
    return Judgement(report.driver, "jobs lost or run twice", "none", float(lost), verdict, why)


HEAD: Final = ("store", "figure", "goal", "measured", "verdict")


def rows(judgements: Iterable[Judgement]) -> Iterator[tuple[str, str, str, str, str]]:
    """Store, figure, goal, measured, verdict; as text."""
    for it in judgements:
        measured = "" if it.measured is None else f"{it.measured:.2f}"
        why = f" ({it.why})" if it.why else ""
        yield it.store, it.figure, it.wanted, measured, f"{it.verdict}{why}"
