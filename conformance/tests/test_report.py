from __future__ import annotations

import copy
from typing import Any

from hesape_conformance import catalogue, report
from hesape_conformance.engine import Verdict

RUN = {
    "driver": {"name": "mine", "distribution": "hesape-mine", "version": "1", "capabilities": [], "facts": []},
    "environment": {"server": "Mine 2.1", "python": "3.11.7", "platform": "linux"},
    "suite": {"catalogue": catalogue.digest()},
    "depth": "quick",
    "seed": 0,
    "known_failures": {},
}


def found(**verdicts: Verdict) -> dict[str, Any]:
    results = []
    for rule in catalogue.everything().values():
        verdict = verdicts.get(rule.id, Verdict.PASSED)
        checks = {check.id: {"verdict": verdict.value, "seconds": 0.1, "detail": ""} for check in rule.checks}
        results.append({"rule": rule.id, "verdict": verdict.value, "detail": "", "checks": checks})
    return {"run": RUN, "results": results, "problems": []}


def test_the_outcome_follows_from_the_gravest_verdict() -> None:
    cases = {
        "conformant": [Verdict.PASSED, Verdict.REFUSED, Verdict.OUTSIDE],
        "deviating": [Verdict.KNOWN],
        "incomplete": [Verdict.NOT_RUN],
        "not conformant": [Verdict.FAILED, Verdict.ERROR],
    }
    for outcome, verdicts in cases.items():
        for verdict in verdicts:
            made = report.build(found(L4=verdict), "now")
            assert made["outcome"] == outcome
    assert report.build(found(L4=Verdict.NOT_RUN, G1=Verdict.FAILED), "now")["outcome"] == "not conformant"
    assert report.EXITS == {"conformant": 0, "deviating": 0, "not conformant": 1, "incomplete": 3}


def test_a_rule_that_is_missing_was_not_run_and_a_run_that_died_is_incomplete() -> None:
    whole = found()
    whole["results"] = [result for result in whole["results"] if result["rule"] != "L4"]
    made = report.build(whole, "now")
    assert (made["verdicts"]["L4"], made["outcome"]) == ("not-run", "incomplete")
    dead = report.build({"run": None, "results": [], "problems": ["it died"]}, "now")
    assert dead["outcome"] == "incomplete"
    assert set(dead["verdicts"].values()) == {"not-run"}


def test_the_digest_is_that_of_what_two_equal_runs_share() -> None:
    one, two = report.build(found(), "now"), report.build(found(), "later")
    two["seconds"]["L4-lapsed"] = 7.0
    assert one["digest"] == two["digest"] == report.digest(two)
    assert report.build(found(L4=Verdict.KNOWN), "now")["digest"] != one["digest"]


def test_a_report_is_verified_against_itself_and_the_installed_suite() -> None:
    good = report.build(found(), "now")
    assert report.problems(good) == []

    def changed(**fields: Any) -> list[str]:
        again = {**copy.deepcopy(good), **fields}
        again["digest"] = report.digest(again)
        return report.problems(again)

    assert "changed after" in report.problems({**good, "seed": 9})[0]
    assert "doesn't follow" in changed(outcome="deviating")[0]
    assert "older catalogue: 1 rules" in changed(verdicts={k: v for k, v in good["verdicts"].items() if k != "G1"})[0]
    assert "doesn't know: Z1" in changed(verdicts={**good["verdicts"], "Z1": "passed"})[0]
    assert "aren't those" in changed(suite={"catalogue": "sha256:old"})[0]
    assert "schema" in changed(schema=2)[0]


def test_the_page_and_the_closing_lines_name_every_rule_that_did_not_pass() -> None:
    made = report.build(found(L4=Verdict.FAILED, X1=Verdict.REFUSED), "now")
    page, closing = report.markdown(made), report.summary(made)
    assert "| L4 | failed |" in page
    assert "| G1 | passed |" in page
    assert "L4 failed" in closing
    assert "X1 refused-as-declared" in closing
    assert "G1 passed" not in closing
