"""The suite's own proof: each saboteur is caught by exactly the rules that it names.

By default each is run on its own rules and on a few of the others; with `HESAPE_SABOTEURS=all` on every rule.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hesape_conformance.saboteurs.model import Saboteur, load
from hesape_conformance.saboteurs.running import Caught, run
from hesape_conformance.saboteurs.table import alone, table
from hesape_conformance.sentences import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).with_name("saboteurs")
PAGE = Path(__file__).parents[2] / "docs" / "saboteurs.md"
SABOTEURS = {saboteur.name: saboteur for saboteur in load(FOLDER)}
ALL = os.environ.get("HESAPE_SABOTEURS") == "all"
SAMPLE = 2
SLOW = {"O1", "B1", "W1", "L9", "S5", "E1", "N1", "L1"}
"""Rules that take about a second: no others are sampled from them."""

pytestmark = pytest.mark.timeout(1800 if ALL else 300)


def tried(saboteur: Saboteur) -> list[str]:
    """The rules that a saboteur is run on: its own, and others that only its name chooses."""
    if ALL:
        return list(SENTENCES)
    others = [rule for rule in SENTENCES if rule not in saboteur.fails | saboteur.may | SLOW]
    return [*saboteur.fails, *random.Random(saboteur.name).sample(others, SAMPLE)]


@pytest.fixture(scope="session")
def caught(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Caught]]]:
    """The runs of the saboteurs that this session asks for, some at the same time: they wait more than they work."""
    wanted = [
        str(item.callspec.params["name"])
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.originalname == "test_a_saboteur_is_caught_by_the_rules_that_it_names_and_no_others"
    ]
    pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
    try:
        yield {name: pool.submit(run, SABOTEURS[name], tried(SABOTEURS[name])) for name in wanted}
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("name", SABOTEURS)
def test_a_saboteur_is_caught_by_the_rules_that_it_names_and_no_others(
    name: str, caught: dict[str, Future[Caught]]
) -> None:
    found = caught[name].result()
    assert not found.story, found.story


@pytest.mark.parametrize("rule", SENTENCES)
def test_without_a_rule_a_saboteur_would_survive(rule: str) -> None:
    survivors = alone(list(SABOTEURS.values()), rule)
    assert survivors, f"take {rule} out and nobody would notice: write a saboteur that it alone catches"


def test_the_table_is_fresh() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == table(list(SABOTEURS.values())), f"write it anew: see {PAGE.name}"
