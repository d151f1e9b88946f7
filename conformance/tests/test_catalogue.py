from __future__ import annotations

import re
from pathlib import Path

import pytest

import hesape_conformance
from hesape.driver import Capability
from hesape_conformance import catalogue
from hesape_conformance.sentences import SENTENCES

PACKAGE = Path(hesape_conformance.__file__).parent


def test_every_rule_of_the_contract_has_a_check() -> None:
    assert list(catalogue.rules()) == list(SENTENCES)
    counts = {"G": 9, "P": 5, "I": 2, "T": 3, "O": 3, "L": 9, "S": 7, "F": 4, "C": 2, "B": 1, "X": 1, "W": 1, "K": 1}
    wanted = {**counts, "E": 4, "N": 5}
    assert {letter: sum(rule[0] == letter for rule in SENTENCES) for letter in wanted} == wanted
    assert len(SENTENCES) == sum(wanted.values())


def test_every_capability_has_a_proof_of_its_refusal() -> None:
    catalogue.rules()
    for capability in Capability:
        assert callable(catalogue.refusal_of(capability))


def test_a_check_of_an_unknown_rule_or_a_taken_name_is_refused() -> None:
    first = next(iter(catalogue.rules().values())).checks[0]
    for rule_id, name in (("Z9", "anything"), (first.rule, first.name)):
        function = type("Named", (), {"__name__": name, "__call__": lambda self, trial: None})()
        with pytest.raises(ValueError, match="rule id of the contract"):
            catalogue.rule(rule_id, "A sentence")(function)


def test_the_package_names_no_driver() -> None:
    words = re.compile(r"postgres|mysql|mariadb|redis|sqlite|psycopg|memory[ _]?driver", re.IGNORECASE)
    for file in PACKAGE.rglob("*.py"):
        found = words.findall(file.read_text(encoding="utf-8"))
        assert not found, f"{file.relative_to(PACKAGE)} names {sorted(set(found))}"


def test_no_check_skips_and_none_expects_just_any_error() -> None:
    for file in (PACKAGE / "rules").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pytest\.skip|importorskip|raises\((Exception|errors\.HesapeError)\b", text), file.name
