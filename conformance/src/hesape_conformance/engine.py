"""Runs checks on a driver and says what came of them."""

from __future__ import annotations

import secrets
import signal
import threading
import time
import traceback
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape_conformance.catalogue import Check, Depth, Rule, refusal_of
from hesape_conformance.harness import NotOfferedError
from hesape_conformance.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from hesape.driver import DriverSpec
    from hesape_conformance.harness import Harness

LONGEST_S: Final = 180
"""A check that takes longer has failed."""


class Verdict(StrEnum):
    """What came of a check or a rule. There is no skipping."""

    PASSED = "passed"
    REFUSED = "refused-as-declared"
    """The capability isn't claimed, and it was shown that it is refused."""
    OUTSIDE = "outside-declared-facts"
    """It needs a fact that the driver doesn't declare."""
    KNOWN = "known-failure"
    """It failed as the harness said it would."""
    FAILED = "failed"
    ERROR = "error"
    """The harness raised, so nothing can be said about the driver."""
    NOT_RUN = "not-run"


@attrs.frozen
class Outcome:
    """What came of one check."""

    check: Check
    verdict: Verdict
    seconds: float
    detail: str = ""
    """Why it didn't pass, or what it wants to be told when it did."""
    error: BaseException | None = attrs.field(default=None, repr=False, eq=False)


@attrs.frozen
class Result:
    """What came of a rule: the gravest of its checks, unless its failure is known."""

    rule: Rule
    verdict: Verdict
    outcomes: tuple[Outcome, ...]
    detail: str = ""

    @property
    def errors(self) -> list[BaseException]:
        """What the checks that didn't pass raised."""
        return [outcome.error for outcome in self.outcomes if outcome.error is not None]

    def as_data(self) -> dict[str, Any]:
        """For a report: plain values."""
        return {
            "rule": self.rule.id,
            "verdict": self.verdict.value,
            "detail": self.detail,
            "checks": {
                outcome.check.id: {
                    "verdict": outcome.verdict.value,
                    "seconds": round(outcome.seconds, 3),
                    "detail": outcome.detail,
                }
                for outcome in self.outcomes
            },
        }


class Engine:
    """One driver under test, from its harness's start to its stop."""

    def __init__(self, harness: Harness, *, depth: Depth = Depth.DEFAULT, seed: int = 0) -> None:
        """Take a harness that was started."""
        self.harness = harness
        self.depth = depth
        self.seed = seed
        self.spec: DriverSpec = harness.spec()
        self._mark = "t" + secrets.token_hex(3)
        self._turn = 0

    def rule(self, rule: Rule) -> Result:
        """Run every check of a rule."""
        outcomes = tuple(self.check(check) for check in rule.checks)
        verdict = combined([outcome.verdict for outcome in outcomes])
        reason = self.harness.known_failures.get(rule.id)
        detail = "; ".join(f"{outcome.check.name}: {outcome.detail}" for outcome in outcomes if outcome.detail)
        if reason is None:
            return Result(rule, verdict, outcomes, detail)
        if verdict is Verdict.FAILED:
            # It excuses what failed, not what wasn't run beside it.
            others = combined([Verdict.PASSED, *(each.verdict for each in outcomes if each.verdict is not verdict)])
            known = others if others in {Verdict.ERROR, Verdict.NOT_RUN} else Verdict.KNOWN
            return Result(rule, known, outcomes, f"{reason} ({detail})")
        if verdict in {Verdict.PASSED, Verdict.REFUSED, Verdict.OUTSIDE}:
            told = f"it is {verdict}, but is listed as a known failure: {reason}"
            return Result(rule, Verdict.FAILED, outcomes, told)
        return Result(rule, verdict, outcomes, detail)

    def check(self, check: Check) -> Outcome:
        """Run one check on a namespace of its own."""
        if not check.facts <= self.spec.facts:
            missing = ", ".join(sorted(check.facts - self.spec.facts))
            return Outcome(check, Verdict.OUTSIDE, 0.0, f"needs {missing}")
        claimed = check.capability is None or check.capability in self.spec.capabilities
        run = check.run if claimed or check.capability is None else refusal_of(check.capability)
        start = time.perf_counter()
        verdict, detail, error = self._attempt(check, run)
        if verdict is Verdict.PASSED and not claimed:
            verdict = Verdict.REFUSED
        return Outcome(check, verdict, time.perf_counter() - start, detail, error)

    def _attempt(self, check: Check, run: Callable[[Trial], None]) -> tuple[Verdict, str, BaseException | None]:
        self._turn += 1
        namespace = f"{self._mark}_{self._turn}"
        try:
            with in_time(check.longest_s or LONGEST_S):
                trial = Trial(self.harness, self.spec, namespace, f"{self.seed}:{check.id}", self.depth)
                try:
                    run(trial)
                finally:
                    trial.close()
        except NotOfferedError as error:
            return Verdict.NOT_RUN, str(error), error
        except Exception as error:  # noqa: BLE001 - whatever a driver raises is its verdict
            verdict = Verdict.ERROR if self._is_harness(error) else Verdict.FAILED
            return verdict, _line(error), error
        return Verdict.PASSED, "; ".join(trial.notes), None

    def _is_harness(self, error: BaseException) -> bool:
        """Whether the harness's own code raised it."""
        if isinstance(error, AssertionError):
            return False
        module = type(self.harness).__module__
        return any(frame.f_globals.get("__name__") == module for frame, _ in traceback.walk_tb(error.__traceback__))


def combined(verdicts: Sequence[Verdict]) -> Verdict:
    """The gravest of what came of a rule's checks; a refusal or a fact counts where nothing else was run."""
    for grave in (Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN, Verdict.PASSED, Verdict.REFUSED, Verdict.OUTSIDE):
        if grave in verdicts:
            return grave
    return Verdict.NOT_RUN


def _line(error: BaseException) -> str:
    text = str(error) or _where(error)
    return f"{type(error).__name__}: {' '.join(text.split())}"[:500]


def _where(error: BaseException) -> str:
    """The line that raised, for an assertion without a message."""
    summary = traceback.extract_tb(error.__traceback__)
    return f"{summary[-1].line} (line {summary[-1].lineno} of {summary[-1].name})" if summary else ""


@contextmanager
def in_time(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in a block that takes too long, where signals reach: in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(_: int, frame: FrameType | None) -> None:
        message = f"the check took more than {seconds} s"
        raise TimeoutError(message)

    before = signal.signal(signal.SIGALRM, late)
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(left)
        signal.signal(signal.SIGALRM, before)
