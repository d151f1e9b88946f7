"""Nothing that wasn't run, was skipped or is stale can pass for a green run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from hesape.drivers.memory.testing import MemoryHarness
from hesape_conformance import catalogue, report
from hesape_conformance.catalogue import Check, Rule
from hesape_conformance.engine import Engine, Verdict, combined
from hesape_conformance.harness import NotOfferedError
from hesape_conformance.sentences import ALL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from hesape_conformance.trial import Trial

RUN = {"driver": {"name": "mine"}, "environment": {}, "suite": {"catalogue": catalogue.digest()}, "depth": "quick"}


def results() -> dict[str, dict[str, Any]]:
    """What a run records of each rule when all pass."""
    return {
        rule.id: {
            "rule": rule.id,
            "verdict": "passed",
            "detail": "",
            "checks": {check.id: {"verdict": "passed", "seconds": 0.1, "detail": ""} for check in rule.checks},
        }
        for rule in catalogue.everything().values()
    }


def built(found: dict[str, dict[str, Any]], *problems: str) -> dict[str, Any]:
    return report.build({"run": RUN, "results": list(found.values()), "problems": list(problems)}, "now")


def test_a_run_in_which_everything_passed_is_green() -> None:
    assert report.EXITS[built(results())["outcome"]] == 0


@pytest.mark.parametrize("rule", ALL)
def test_a_run_without_any_one_rule_is_not_green(rule: str) -> None:
    found = results()
    del found[rule]
    made = built(found)
    assert made["verdicts"][rule] == "not-run"
    assert report.EXITS[made["outcome"]] == 3


@pytest.mark.parametrize("rule", ALL)
def test_a_rule_of_which_one_step_was_skipped_is_not_green(rule: str) -> None:
    found = results()
    step = next(iter(found[rule]["checks"]))
    del found[rule]["checks"][step]
    made = built(found)
    assert made["verdicts"][rule] == "not-run"
    assert report.EXITS[made["outcome"]] == 3
    assert step.partition("-")[2] in made["details"][rule]
    assert step.partition("-")[2] in report.summary(made)


def test_a_rule_whose_checks_were_all_taken_out_of_the_suite_is_not_green(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, found = catalogue.everything(), results()
    monkeypatch.setattr(catalogue, "everything", lambda: {name: rule for name, rule in whole.items() if name != "L4"})
    assert built(found)["verdicts"]["L4"] == "not-run"
    del found["L4"]
    made = built(found)
    assert (made["verdicts"]["L4"], report.EXITS[made["outcome"]]) == ("not-run", 3)
    assert "L4 not-run" in report.summary(made)
    assert "| L4 | not-run |" in report.markdown(made)
    assert combined([]) is Verdict.NOT_RUN


def test_a_run_beside_which_something_went_wrong_is_not_green() -> None:
    assert report.EXITS[built(results(), "an error at the end")["outcome"]] == 3


class Knowing(MemoryHarness):
    known_failures: ClassVar[Mapping[str, str]] = {"G1": "a reason"}


def test_a_known_failure_is_stale_when_its_rule_passes_is_refused_or_lies_outside_the_facts() -> None:
    from hesape.driver import Capability, Fact

    def passes(trial: Trial) -> None:
        del trial

    checks = (
        Check("G1", "passes", "A sentence", passes),
        Check("G1", "refused", "A sentence", passes, Capability.TRANSACTIONS),
        Check("G1", "outside", "A sentence", passes, None, frozenset({Fact.DURABLE})),
    )
    for check in checks:
        result = Engine(Knowing()).rule(Rule("G1", "A sentence", (check,)))
        assert result.verdict is Verdict.FAILED, check.name
        assert "listed as a known failure" in result.detail


def test_a_known_failure_excuses_no_step_that_was_not_run() -> None:
    def not_offered(trial: Trial) -> None:
        raise NotOfferedError("not here")

    def fails(trial: Trial) -> None:
        raise AssertionError

    def verdict(*runs: Any) -> Verdict:
        checks = tuple(Check("G1", f"check {n}", "A sentence", run) for n, run in enumerate(runs))
        return Engine(Knowing()).rule(Rule("G1", "A sentence", checks)).verdict

    assert verdict(fails) is Verdict.KNOWN
    assert verdict(not_offered) is Verdict.NOT_RUN
    assert verdict(fails, not_offered) is Verdict.NOT_RUN


SKIPPING = """
import pytest
from hesape.drivers.memory.testing import MemoryHarness
from hesape_conformance.suite import *

class Mine(MemoryHarness):
    def raw(self, namespace):
        pytest.{how}("not today")

@pytest.fixture(scope="session")
def hesape_harness():
    return Mine()
"""


@pytest.mark.parametrize("how", ["skip", "xfail"])
def test_a_step_that_skips_itself_has_failed(tmp_path: Path, how: str) -> None:
    (tmp_path / "test_mine.py").write_text(SKIPPING.format(how=how), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "test_mine.py", "-k", "C2"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "here nothing is: not today" in done.stdout
