"""What a torture came to: for people, for machines, and as an exit code."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any, Final

import attrs

from hesape_conformance.history import Kind, Verdict

_SHOWN: Final = 20
KILLS_EVERY_S: Final = 8.0
"""A run must kill a process with a running handler once in so many seconds, on average."""
STALE_EVERY_S: Final = 15.0
"""The same for a settlement that the store refuses because its delivery is over."""


def least_kills(seconds: float) -> int:
    """Fewer kills that hit a running handler are no pass."""
    return max(1, int(seconds / KILLS_EVERY_S))


def least_stale(seconds: float) -> int:
    """Fewer stale settlements are no pass."""
    return max(1, int(seconds / STALE_EVERY_S))


class Outcome(StrEnum):
    """What is said in the end."""

    PASSED = "passed"
    FAILED = "failed"
    SPARED = "not a pass"
    """Nothing was found, but too little was tried."""


WORST_FIRST: Final = (Outcome.FAILED, Outcome.SPARED, Outcome.PASSED)
EXITS: Final = {Outcome.PASSED: 0, Outcome.FAILED: 1, Outcome.SPARED: 3}


@attrs.frozen(kw_only=True)
class Report:
    """One driver's torture."""

    driver: str
    server: str
    seconds: float
    seed: int
    took_s: float
    drained_s: float | None
    """How long the workers took to finish everything after the last strike; `None`: they didn't."""
    settles: dict[str, int]
    """How many supervisors were started to settle in batches, and how many to settle each job by itself."""
    blows: dict[str, int]
    spared: list[str]
    """Blows that this store or its harness can't suffer."""
    problems: list[str]
    """Processes that ended, or didn't, when they shouldn't have."""
    verdict: Verdict

    @property
    def outcome(self) -> Outcome:
        """Passed only if nothing was found and enough was tried."""
        if self.verdict.violations or self.problems or self.drained_s is None:
            return Outcome.FAILED
        tried = self.verdict.kills_that_hit >= least_kills(self.seconds) and self.verdict.stale_attempts >= least_stale(
            self.seconds
        )
        return Outcome.PASSED if tried else Outcome.SPARED

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        verdict = self.verdict
        return {
            **attrs.asdict(self, recurse=False, filter=lambda field, _: field.name != "verdict"),
            "outcome": str(self.outcome),
            "counts": {
                **{name: getattr(verdict, name) for name in _COUNTS},
                "least_kills_that_hit": least_kills(self.seconds),
                "least_stale_attempts": least_stale(self.seconds),
            },
            "duplicates": dict(verdict.duplicates),
            "violations": {str(kind): verdict.count(kind) for kind in Kind},
            "redelivery_s": {"n": len(verdict.redelivered_s), "p50": verdict.percentile(0.5), "p99": self._p99},
            "found": [str(violation) for violation in verdict.violations],
        }

    @property
    def _p99(self) -> float | None:
        return self.verdict.percentile(0.99)

    def text(self) -> str:
        """For people."""
        verdict = self.verdict
        drained = "they never drained" if self.drained_s is None else f"drained in {self.drained_s:.1f} s"
        lines = [
            f"{self.driver} on {self.server}: {self.outcome}",
            f"  {self.seconds:g} s of chaos with seed {self.seed}, {drained}, {self.took_s:.0f} s in all",
            f"  supervisors started, by how they settle: {_listed(self.settles)}",
            f"  blows: {_listed(self.blows)}",
            *([f"  not possible here: {', '.join(self.spared)}"] if self.spared else []),
            f"  pushed {verdict.pushed}, refused {verdict.refused}, unknown {verdict.unknown}",
            f"  delivered {verdict.delivered}, put back {verdict.put_back}",
            f"  duplicates {verdict.duplicates.total()} ({_listed(verdict.duplicates)})",
            f"  kills that hit a running job {verdict.kills_that_hit} (at least {least_kills(self.seconds)})",
            f"  stale settlements attempted {verdict.stale_attempts} (at least {least_stale(self.seconds)})",
            f"  redelivery after a kill: {self._redelivery()}",
            "  " + ", ".join(f"{kind} {verdict.count(kind)}" for kind in Kind),
        ]
        found = [*map(str, verdict.violations), *self.problems]
        lines += [f"  ! {one}" for one in found[:_SHOWN]]
        return "\n".join(lines + ([f"  ! and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []))

    def _redelivery(self) -> str:
        p50, p99 = self.verdict.percentile(0.5), self._p99
        if p50 is None or p99 is None:
            return "none"
        return f"p50 {p50:.2f} s, p99 {p99:.2f} s of {len(self.verdict.redelivered_s)}"


_COUNTS: Final = ("pushed", "refused", "unknown", "delivered", "put_back", "stale_attempts", "kills_that_hit")


def _listed(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{what} {n}" for what, n in counts.items() if n) or "none"
