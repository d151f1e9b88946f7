"""The process that runs rules on a sabotaged driver and tells, line by line, what came of each.

    python -m hesape_conformance.saboteurs.probe DRIVER ALL_CHECKS [RULE ...]

`ALL_CHECKS` is 1, or 0 to end a rule at its first check that fails.
"""

from __future__ import annotations

import json
import logging
import sys

from hesape_conformance import catalogue, engine, expect
from hesape_conformance.engine import Engine, Outcome, Verdict, combined
from hesape_conformance.installed import find_harness

BAD = frozenset((Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN))
"""With one of these a run isn't green: whoever caused it is caught."""


def run(running: Engine, rule: catalogue.Rule, *, all_checks: bool) -> list[Outcome]:
    """The outcomes of a rule's checks, up to the first bad one unless all are wanted."""
    outcomes = []
    for check in rule.checks:
        outcomes.append(running.check(check))
        if outcomes[-1].verdict in BAD and not all_checks:
            break
    return outcomes


def main(driver: str, all_checks: str, *rule_ids: str) -> None:
    """Run the rules, by default all, and print a line of JSON for each."""
    logging.disable(logging.CRITICAL)
    expect.PATIENCE_S = 4.0  # most of the time here is spent waiting for what won't come
    engine.LONGEST_S = 40  # type: ignore[misc]
    rules = catalogue.rules()
    harness = find_harness(driver)()
    harness.start()
    try:
        running = Engine(harness, depth=catalogue.Depth.QUICK)
        for rule_id in rule_ids or rules:
            outcomes = run(running, rules[rule_id], all_checks=bool(int(all_checks)))
            verdict = combined([outcome.verdict for outcome in outcomes])
            bad = {outcome.check.name: outcome.detail for outcome in outcomes if outcome.verdict in BAD}
            sys.stdout.write(json.dumps({"rule": rule_id, "verdict": verdict.value, "bad": bad}) + "\n")
            sys.stdout.flush()
    finally:
        harness.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
