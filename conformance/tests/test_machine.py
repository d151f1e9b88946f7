"""The state machine on the store in memory: it passes as it is, and each fault planted in it ends in a story."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from hesape.drivers.memory.driver import MemoryDriver
from hesape.drivers.memory.testing import MemoryHarness
from hesape.records import Claimed
from hesape_conformance import catalogue
from hesape_conformance.catalogue import Depth
from hesape_conformance.cli import main
from hesape_conformance.engine import Engine, Outcome, Verdict
from hesape_conformance.machine import shrink
from hesape_conformance.machine.shrink import _variants, shorten
from hesape_conformance.machine.steps import Choice
from hesape_conformance.machine.story import PRODUCED, Findings, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hesape.driver import Driver
    from hesape.records import Claim


def walk(seed: int = 0) -> Outcome:
    [check] = catalogue.everything()["machine"].checks
    return Engine(MemoryHarness(), depth=Depth.QUICK, seed=seed).check(check)


def counts(outcome: Outcome) -> dict[str, int]:
    parts = [part.strip().rpartition(" ") for part in outcome.detail.partition(";")[2].split(",")]
    return {name: int(number) for name, _, number in parts}


def test_the_reference_store_passes_and_everything_was_produced() -> None:
    seed = random.randrange(10**6)
    outcome = walk(seed)
    assert outcome.verdict is Verdict.PASSED, f"seed {seed}: {outcome.error}"
    produced = counts(outcome)
    assert produced.keys() == set(PRODUCED)
    assert min(produced.values()) > 0


def test_equal_seeds_make_equal_steps_and_others_make_others() -> None:
    details = [walk(seed).detail for seed in (3, 3, 4)]
    assert details[0] == details[1] != details[2]


def reserve_with(change: Callable[[Any, Claim], Claimed]) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        real = MemoryDriver.reserve
        patch.setattr(MemoryDriver, "reserve", lambda self, claim: change(_Real(self, real), claim))

    return plant


class _Real:
    """A driver whose `reserve` is what it was."""

    def __init__(self, driver: Driver, real: Callable[..., Claimed]) -> None:
        self.driver = driver
        self.reserve = lambda claim: real(driver, claim)


def resumes_first(driver: Any, claim: Claim) -> Claimed:
    for queue in claim.queues:
        driver.driver.resume(queue)
    found: Claimed = driver.reserve(claim)
    return found


def sorts_queues(driver: Any, claim: Claim) -> Claimed:
    found: Claimed = driver.reserve(claim._replace(queues=tuple(sorted(claim.queues))))
    return found


def forgets_an_attempt(driver: Any, claim: Claim) -> Claimed:
    found: Claimed = driver.reserve(claim)
    rows = [row._replace(attempts=1) for row in found.rows]
    return found._replace(rows=rows)


def believes_in_any_token(patch: pytest.MonkeyPatch) -> None:
    real = MemoryDriver._delete

    def delete(self: Any, keys: Any, *, repeat: bool, tx: object) -> Any:
        with self._locked() as kept:
            tokens = {key.id: kept.jobs[key.id].token for key in keys if key.id in kept.jobs}
        known = [key._replace(token=tokens.get(key.id) or key.token) for key in keys]
        return real(self, known, repeat=repeat, tx=tx)

    patch.setattr(MemoryDriver, "_delete", delete)


def keeps_an_attempt(patch: pytest.MonkeyPatch) -> None:
    real = MemoryDriver._release
    patch.setattr(MemoryDriver, "_release", lambda self, key, **options: real(self, key, **{**options, "spent": True}))


def flushes_by_age(patch: pytest.MonkeyPatch) -> None:
    real = MemoryDriver.prune
    patch.setattr(MemoryDriver, "prune", lambda self, age_us: real(self, None))


def trusts_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    from hesape import envelope

    patch.setattr(envelope, "_check_seal", lambda frame, body, keys: None)


@pytest.mark.parametrize(
    ("plant", "steps", "words"),
    [
        (reserve_with(resumes_first), 4, ("pause", "what is delivered: expected []")),
        (reserve_with(sorts_queues), 3, ("pop", "what is delivered: expected")),
        (reserve_with(forgets_an_attempt), 4, ("attempts, exceptions and error of",)),
        (believes_in_any_token, 4, ("foreign token", "what was lost")),
        (keeps_an_attempt, 4, ("unspent", "the stored attempts")),
        (flushes_by_age, 5, ("prune what failed more than 3600 s ago", "how many went: expected 0")),
        (trusts_what_is_stored, 3, ("change the stored envelope of A", "what is delivered: expected []")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_fault_ends_in_a_short_story(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    steps: int,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(shrink, "SHRINK_S", 5.0)
    plant(monkeypatch)
    # What a seed draws changes with every constant of our own code, since Hypothesis tries those, too.
    outcome = next((found for found in map(walk, range(10)) if found.verdict is Verdict.FAILED), None)
    assert outcome is not None
    told = str(outcome.error)
    assert told.startswith("it goes wrong in")
    assert "\n  1. " in told
    for word in words:
        assert word in told
    assert told.count("\n") <= steps + 3, told


def test_the_shortest_story_is_told_numbered_and_with_its_end() -> None:
    findings = Findings()
    for lines in (["push A", "pop", "delete A"], ["push A", "pop"], ["push B", "look", "pop"]):
        tale = Story()
        for line in lines:
            tale.say(line)
        tale.add("nothing")
        findings.failed(tale, AssertionError(f"after {len(lines)}"))
    with pytest.raises(AssertionError, match=r"in 2 steps:\n  1\. push A\n  2\. pop: nothing\n  after 2"):
        findings.tell()


def test_a_story_is_shortened_to_what_it_needs_and_no_longer_than_a_while() -> None:
    tried = []

    def needs_three_and_seven(choices: Sequence[Choice]) -> bool:
        tried.append(len(choices))
        found = [choice.arguments["pick"] for choice in choices]
        return 3 in found and 7 in found and found.index(3) < found.index(7)

    choices = [Choice(move=Any, arguments={"pick": number}) for number in range(25)]  # type: ignore[arg-type]
    shorten(choices, needs_three_and_seven)
    assert min(tried) <= 2
    assert len(tried) < 80


def test_an_argument_is_made_simpler_one_part_at_a_time() -> None:
    choice = Choice(move=Any, arguments={"queues": ["red", "blue"], "known": (4, 1), "pick": 5, "n": 2})  # type: ignore[arg-type]
    assert [variant.arguments for variant in _variants(choice)] == [
        {**choice.arguments, "queues": ["blue"]},
        {**choice.arguments, "queues": ["red"]},
        {**choice.arguments, "known": None},
        {**choice.arguments, "pick": 0},
    ]


def test_what_never_came_up_is_a_failure() -> None:
    findings = Findings()
    for name in PRODUCED[1:]:
        findings.produced[name] = 1
    with pytest.raises(AssertionError, match=f"never produced {PRODUCED[0]},"):
        findings.conclude()
    findings.produced[PRODUCED[0]] = 1
    assert f"{PRODUCED[0]} 1" in findings.conclude()


def test_the_report_tells_what_was_produced_and_that_the_sweep_is_for_servers(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ["run", "memory", "--depth", "quick", "--only", "machine", "--only", "sweep", "--report", str(file)]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 3, done.output
    report = json.loads(file.read_text(encoding="utf-8"))
    assert (report["verdicts"]["machine"], report["verdicts"]["sweep"]) == ("passed", "outside-declared-facts")
    assert "equal priorities" in report["details"]["machine"]
    assert "equal priorities" in done.output
