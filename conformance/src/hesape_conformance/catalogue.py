"""The catalogue: rules as data. A rule is an id of the contract, a sentence, and the checks that prove it."""

from __future__ import annotations

import hashlib
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final

import attrs

from hesape_conformance.sentences import ALL, PARTS, SENTENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from hesape.driver import Capability, Fact
    from hesape_conformance.trial import Trial


class Depth(StrEnum):
    """How much a run does: every check runs at every depth, with fewer or more repetitions."""

    QUICK = "quick"
    DEFAULT = "default"
    FULL = "full"


@attrs.frozen
class Check:
    """One experiment on a store. It passes by returning, fails by raising."""

    rule: str
    name: str
    sentence: str
    run: Callable[[Trial], None] = attrs.field(repr=False)
    capability: Capability | None = None
    """Run where it is claimed; elsewhere the capability's refusal is run instead."""
    facts: frozenset[Fact] = frozenset()
    """Run where all of these are declared; elsewhere it is outside the declared facts."""
    longest_s: int | None = None
    """When it takes longer it has failed; `None`: the engine's limit."""

    @property
    def id(self) -> str:
        """The rule's id and the check's name."""
        return f"{self.rule}-{self.name}"


@attrs.frozen
class Rule:
    """A rule of the contract, or another part of a run: it holds when all its checks pass."""

    id: str
    sentence: str
    checks: tuple[Check, ...]


_checks: Final[dict[str, Check]] = {}
_refusals: Final[dict[Capability, Callable[[Trial], None]]] = {}


def rule(
    rule_id: str,
    sentence: str,
    *,
    capability: Capability | None = None,
    facts: Iterable[Fact] = (),
    longest_s: int | None = None,
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Make a function a check of a rule; several checks may prove one rule."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        check = Check(rule_id, run.__name__, sentence, run, capability, frozenset(facts), longest_s)
        if rule_id not in ALL or check.id in _checks:
            message = f"{check.id}: expected a rule id of the contract and a name that is not taken"
            raise ValueError(message)
        _checks[check.id] = check
        return run

    return register


def refusal(capability: Capability) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Make a function the proof that a driver which doesn't claim a capability refuses it."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        _refusals[capability] = run
        return run

    return register


def refusal_of(capability: Capability) -> Callable[[Trial], None]:
    """The proof that this capability is refused where it isn't claimed."""
    return _refusals[capability]


def rules() -> dict[str, Rule]:
    """Every rule by its id, in the order of the contract."""
    return _collected(SENTENCES)


def everything() -> dict[str, Rule]:
    """What a whole run consists of, by its id: the rules, and then the other parts."""
    return _collected(ALL)


def _collected(sentences: Mapping[str, str]) -> dict[str, Rule]:
    from hesape_conformance import rules as package

    for module in iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")
    for part in PARTS:
        import_module(f"hesape_conformance.{part}.check")
    found = {}
    for rule_id, sentence in sentences.items():
        mine = sorted((check for check in _checks.values() if check.rule == rule_id), key=lambda check: check.name)
        if mine:
            found[rule_id] = Rule(rule_id, sentence, tuple(mine))
    return found


def digest() -> str:
    """What this catalogue demands, in one number: ids, sentences and conditions of all checks."""
    lines = [
        f"{check.id}|{check.sentence}|{check.capability or ''}|{','.join(sorted(check.facts))}"
        for found in everything().values()
        for check in found.checks
    ]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()
