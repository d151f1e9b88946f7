"""The check: so many examples, the same ones for the same seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from hesape_conformance.machine.moves import Moves
from hesape_conformance.machine.shrink import shorten
from hesape_conformance.machine.stage import KEYS
from hesape_conformance.machine.steps import Machine
from hesape_conformance.machine.story import Findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape_conformance.machine.steps import Choice
    from hesape_conformance.trial import Trial


def run(trial: Trial) -> str:
    """Make random steps; what they produced, in a line. `AssertionError` with a story in words when one goes wrong."""
    queues = (trial.another(keys=KEYS), trial.another(keys=KEYS))
    findings = Findings()

    def new() -> Machine:
        return Machine(lambda: Moves(trial, queues, findings))

    def fails(choices: Sequence[Choice]) -> bool:
        try:
            machine = new()
            for choice in choices:
                machine.play(choice)
        except Exception:  # noqa: BLE001 - the story keeps it
            return True
        return False

    begin: Any = hypothesis.seed(trial.random.getrandbits(64))(new)  # a function will do, and a class can't be seeded
    settings = hypothesis.settings(
        max_examples=trial.times(25, 100, 1_000),
        stateful_step_count=trial.times(25, 30, 50),
        deadline=None,
        database=None,
        phases=(hypothesis.Phase.generate,),  # steps are left out by a shrinker that knows what a step is
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )
    try:
        run_state_machine_as_test(begin, settings=settings)
    except Exception:
        if not findings.bad:
            raise
        shorten(findings.choices, fails)
    findings.tell()
    return findings.conclude()
