"""The report of a run: what was tested, with what, and what every rule came to."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hesape_conformance import catalogue
from hesape_conformance.engine import Verdict
from hesape_conformance.sentences import ALL, PARTS

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA: Final = 1
OUTSIDE_DIGEST: Final = ("digest", "finished", "seconds", "details")
"""What differs between two equal runs."""
NOT_CLAIMED: Final = "This says what was run. It is no proof that there are no faults, and it isn't signed."
EXITS: Final = {"conformant": 0, "deviating": 0, "not conformant": 1, "incomplete": 3}


def build(found: Mapping[str, Any], finished: str) -> dict[str, Any]:
    """Make a report of what the plugin collected. A rule that isn't in it was not run."""
    rules = catalogue.everything()
    by_rule = {result["rule"]: result for result in found["results"]}
    verdicts: dict[str, str] = {}
    checks: dict[str, str] = {}
    seconds: dict[str, float] = {}
    details: dict[str, str] = {}
    for rule_id in ALL:
        wanted = rules[rule_id].checks if rule_id in rules else ()
        result = by_rule.get(rule_id, {"verdict": Verdict.NOT_RUN.value, "detail": "the run ended before it"})
        skipped = [check.name for check in wanted if check.id not in result.get("checks", {})]
        if (skipped or not wanted) and result["verdict"] not in {Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN}:
            result = {**result, "verdict": Verdict.NOT_RUN.value, "detail": f"not run: {', '.join(skipped) or 'all'}"}
        verdicts[rule_id] = result["verdict"]
        if result["detail"]:
            details[rule_id] = result["detail"]
        for check in wanted:
            part = result.get("checks", {}).get(check.id, {"verdict": Verdict.NOT_RUN.value})
            checks[check.id] = part["verdict"]
            seconds[check.id] = part.get("seconds", 0.0)
            if part.get("detail"):
                details[check.id] = part["detail"]
    for number, problem in enumerate(found["problems"]):
        details[f"problem {number}"] = problem
    report = {
        "schema": SCHEMA,
        **(found["run"] or {}),
        "outcome": outcome(verdicts.values(), bool(found["problems"])),
        "verdicts": verdicts,
        "checks": checks,
        "not_claimed": NOT_CLAIMED,
        "details": details,
        "seconds": seconds,
        "finished": finished,
    }
    return {**report, "digest": digest(report)}


def outcome(verdicts: Any, problems: bool) -> str:  # noqa: FBT001 - two facts, one answer
    """What a run came to as a whole."""
    counted = Counter(verdicts)
    if counted[Verdict.FAILED] or counted[Verdict.ERROR]:
        return "not conformant"
    if counted[Verdict.NOT_RUN] or problems or not counted:
        return "incomplete"
    return "deviating" if counted[Verdict.KNOWN] else "conformant"


def digest(report: Mapping[str, Any]) -> str:
    """One number for all that two equal runs share."""
    shared = {key: value for key, value in report.items() if key not in OUTSIDE_DIGEST}
    return "sha256:" + hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def problems(report: Mapping[str, Any]) -> list[str]:
    """What is wrong with a report, seen from the installed suite; empty when nothing is."""
    found = []
    if report.get("schema") != SCHEMA:
        return [f"schema {report.get('schema')!r}, expected {SCHEMA}"]
    if report.get("digest") != digest(report):
        found.append("the digest is wrong: the report was changed after it was written")
    if report.get("outcome") != outcome(report.get("verdicts", {}).values(), problems=False):
        found.append(f"the outcome {report.get('outcome')!r} doesn't follow from its verdicts")
    mine, theirs = set(catalogue.everything()), set(report.get("verdicts", {}))
    if added := sorted(mine - theirs):
        found.append(f"older catalogue: {len(added)} rules added since ({', '.join(added)})")
    if removed := sorted(theirs - mine):
        found.append(f"rules that this suite doesn't know: {', '.join(removed)}")
    if not added and not removed and report.get("suite", {}).get("catalogue") != catalogue.digest():
        found.append("the catalogue's checks aren't those of the installed suite")
    return found


def markdown(report: Mapping[str, Any]) -> str:
    """The report as a page."""
    driver, environment = report.get("driver", {}), report.get("environment", {})
    lines = [
        f"# {driver.get('name', 'no driver')}: {report['outcome']}",
        "",
        f"{driver.get('distribution')} {driver.get('version')} on {environment.get('server')}.",
        f"Python {environment.get('python')}, depth {report.get('depth')}, seed {report.get('seed')}.",
        "",
        f"Claims: {', '.join(driver.get('capabilities', ())) or 'none'}.",
        f"Facts: {', '.join(driver.get('facts', ())) or 'none'}.",
        "",
        "| rule | verdict | |",
        "| --- | --- | --- |",
    ]
    for rule_id, sentence in ALL.items():
        lines.append(f"| {rule_id} | {report['verdicts'].get(rule_id, Verdict.NOT_RUN)} | {sentence} |")
    shown = {key: value for key, value in report["details"].items() if "-" not in key}
    lines += ["", *(f"- {key}: {value}" for key, value in shown.items()), "", report["not_claimed"], ""]
    return "\n".join(lines)


def summary(report: Mapping[str, Any]) -> str:
    """The closing lines of a run."""
    counted = Counter(report["verdicts"].values())
    rules = catalogue.everything()
    lines = [", ".join(f"{counted[verdict]} {verdict}" for verdict in Verdict if counted[verdict])]
    for rule_id, verdict in report["verdicts"].items():
        if verdict != Verdict.PASSED:
            lines.append(f"  {rule_id} {verdict}: {ALL[rule_id]}")
            if verdict not in {Verdict.OUTSIDE, Verdict.REFUSED} and rule_id in rules:
                lines += [
                    f"    {check.name}: {report['checks'][check.id]}: {report['details'].get(check.id, '')}"
                    for check in rules[rule_id].checks
                    if report["checks"][check.id] not in {Verdict.PASSED, Verdict.OUTSIDE, Verdict.REFUSED}
                ]
    lines += [f"  {part} passed: {report['details'][part]}" for part in PARTS
              if report["verdicts"][part] == Verdict.PASSED and part in report["details"]]  # fmt: skip
    lines += [f"  {key}: {value}" for key, value in report["details"].items() if key.startswith("problem")]
    lines.append(f"{report['outcome']} ({report['digest']})")
    return "\n".join(lines)
