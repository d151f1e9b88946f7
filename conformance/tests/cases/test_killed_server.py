"""The server killed with SIGKILL and started again, under four producers and four workers."""

from __future__ import annotations

import random

import pytest

from hesape_conformance.harness import Harness
from hesape_conformance.torture.plan import Blow
from hesape_conformance.torture.run import Torment, torture

KILLS = 2


@pytest.mark.parametrize("harness", ["mysql", "postgres", "redis"], indirect=True)
def test_nothing_is_lost_altered_or_brought_back_when_the_server_is_killed(harness: Harness) -> None:
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201 - a random test prints its seed
    torment = Torment(seconds=5.0, seed=seed, producers=4, workers=2, only=frozenset({Blow.KILL_SERVER}))
    report = torture(harness, torment)
    assert report.verdict.violations == [], report.text()
    assert report.problems == [], report.text()
    assert report.drained_s is not None, report.text()
    assert report.blows[Blow.KILL_SERVER] >= KILLS, report.text()
    assert report.verdict.delivered > 0, report.text()
