from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from hesape.driver import Capability, Fact
from hesape.drivers.memory.testing import MemoryHarness
from hesape_conformance import catalogue, engine
from hesape_conformance.catalogue import Check, Rule
from hesape_conformance.engine import Engine, Verdict, combined
from hesape_conformance.harness import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hesape.driver import Driver
    from hesape_conformance.trial import Trial


class Knowing(MemoryHarness):
    known_failures: ClassVar[Mapping[str, str]] = {"G1": "a reason"}


class Broken(MemoryHarness):
    def raw(self, namespace: str) -> Any:
        raise OSError(namespace)


def check(run: Callable[[Trial], object], **options: Any) -> Check:
    def called(trial: Trial) -> None:
        run(trial)

    return Check("G1", "name", "A sentence", called, **options)


def verdict(run: Callable[[Trial], object], harness: MemoryHarness | None = None, **options: Any) -> Verdict:
    return Engine(harness or MemoryHarness()).check(check(run, **options)).verdict


def fails(trial: Trial) -> None:
    assert trial.queue.counts().size == 1


def passes(trial: Trial) -> None:
    trial.push()


def not_offered(trial: Trial) -> None:
    raise NotOfferedError("not here")


def test_a_check_passes_by_returning_and_fails_by_raising_anything() -> None:
    assert verdict(passes) is Verdict.PASSED
    assert verdict(fails) is Verdict.FAILED
    assert verdict(lambda _: 1 / 0) is Verdict.FAILED


def test_what_a_harness_raises_is_an_error_and_what_it_does_not_offer_is_not_run() -> None:
    assert verdict(passes, Broken()) is Verdict.ERROR
    assert verdict(not_offered) is Verdict.NOT_RUN


def test_an_unclaimed_capability_runs_its_refusal_and_an_undeclared_fact_runs_nothing() -> None:
    assert verdict(fails, capability=Capability.TRANSACTIONS) is Verdict.REFUSED
    assert verdict(fails, capability=Capability.NOTIFICATIONS) is Verdict.FAILED
    assert verdict(fails, facts=frozenset({Fact.NETWORKED})) is Verdict.OUTSIDE


class Watching(MemoryHarness):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
        driver = super().open(namespace, endpoint=endpoint)
        object.__setattr__(driver, "close", lambda: self.told.append(f"close {namespace}"))
        return driver

    def drop(self, namespace: str) -> None:
        self.told.append(f"drop {namespace}")


def test_each_check_has_a_store_of_its_own_which_is_closed_and_dropped_at_its_end() -> None:
    harness = Watching()
    running = Engine(harness)

    def opening(trial: Trial) -> None:
        assert trial.rows() == {}
        passes(trial)
        trial.another(namespace=trial.elsewhere())

    def failing(trial: Trial) -> None:
        opening(trial)
        fails(trial)
        raise ZeroDivisionError

    for run in (opening, failing):
        before = len(harness.told)
        running.check(check(run))
        closed, mine, dropped, own = (line.split() for line in harness.told[before:] if line.split())
        assert [closed[0], mine[0], dropped[0], own[0]] == ["close", "drop", "close", "drop"]
        assert closed[1] == mine[1] == f"{own[1]}_1"
        assert dropped[1] == own[1]
    assert len(set(harness.told)) == len(harness.told)


def test_a_check_that_takes_too_long_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LONGEST_S", 1)
    outcome = Engine(MemoryHarness()).check(check(lambda _: time.sleep(20)))
    assert outcome.verdict is Verdict.FAILED
    assert "more than 1 s" in outcome.detail
    assert outcome.seconds < 5


def test_the_gravest_check_decides_about_a_rule() -> None:
    order = [Verdict.FAILED, Verdict.ERROR, Verdict.NOT_RUN, Verdict.PASSED, Verdict.REFUSED, Verdict.OUTSIDE]
    for place, grave in enumerate(order):
        assert combined([*reversed(order[place:]), *order[place:]]) is grave


def test_a_known_failure_is_strict() -> None:
    running = Engine(Knowing())

    def result(run: Callable[[Trial], object]) -> engine.Result:
        return running.rule(Rule("G1", "A sentence", (check(run),)))

    assert result(fails).verdict is Verdict.KNOWN
    assert "a reason" in result(fails).detail
    assert result(passes).verdict is Verdict.FAILED
    assert "listed as a known failure" in result(passes).detail
    assert result(not_offered).verdict is Verdict.NOT_RUN


def test_equal_seeds_draw_equal_numbers_and_other_checks_others() -> None:
    drawn: list[float] = []
    noting = check(lambda trial: drawn.append(trial.random.random()))
    for seed in (5, 5, 6):
        Engine(MemoryHarness(), seed=seed).check(noting)
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_reference_store_meets_a_rule() -> None:
    result = Engine(MemoryHarness(), depth=catalogue.Depth.QUICK).rule(catalogue.rules()["C1"])
    assert result.verdict is Verdict.PASSED
    assert {outcome.verdict for outcome in result.outcomes} == {Verdict.PASSED}
