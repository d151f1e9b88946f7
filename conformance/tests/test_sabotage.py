"""How saboteurs are read, planted and judged."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from hesape_conformance.saboteurs import __main__ as command
from hesape_conformance.saboteurs import running
from hesape_conformance.saboteurs.copying import package_folder, plant
from hesape_conformance.saboteurs.model import Saboteur, load
from hesape_conformance.saboteurs.running import Caught, run
from hesape_conformance.saboteurs.table import alone, table

if TYPE_CHECKING:
    from pathlib import Path


def saboteur(**fields: Any) -> Saboteur:
    """One that changes nothing that matters, unless told."""
    given: dict[str, Any] = {
        "name": "harmless",
        "does": "Nothing wrong.",
        "driver": "memory",
        "file": "hesape/drivers/memory/look.py",
        "line": "return sorted(store.lanes.keys() | store.paused)",
        "instead": "return sorted(store.paused | store.lanes.keys())",
        "fails": ["C1"],
    }
    return Saboteur(**{**given, **fields})


def test_one_line_is_changed_and_its_indentation_kept() -> None:
    text = "def a():\n    x = 1\n\ndef b():\n    x = 1\n"
    changing = saboteur(line="x = 1", instead="x = 2", within="def b")
    assert changing.alter(text) == "def a():\n    x = 1\n\ndef b():\n    x = 2\n"


@pytest.mark.parametrize(("line", "within"), [("y = 1", ""), ("x = 1", ""), ("x = 1", "def c")])
def test_a_line_that_is_not_there_or_there_twice_is_refused(line: str, within: str) -> None:
    with pytest.raises(ValueError, match="lines"):
        saboteur(line=line, within=within).alter("def a():\n    x = 1\n\ndef b():\n    x = 1\n")


@pytest.mark.parametrize(
    "fields",
    [{"fails": []}, {"fails": ["Z9"]}, {"may": ["C1"]}, {"may": ["Z9"]}, {"instead": "a\nb"}, {"line": "a\nb"}],
)
def test_what_is_no_saboteur_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="harmless"):
        saboteur(**fields)


def test_a_name_may_be_used_once(tmp_path: Path) -> None:
    entry = (
        '[[saboteur]]\nname = "x"\ndoes = "x"\ndriver = "x"\nfile = "x"\nline = "a"\ninstead = "b"\nfails = ["C1"]\n'
    )
    (tmp_path / "one.toml").write_text(entry, encoding="utf-8")
    assert [found.name for found in load(tmp_path)] == ["x"]
    (tmp_path / "two.toml").write_text(entry, encoding="utf-8")
    with pytest.raises(ValueError, match="twice"):
        load(tmp_path)


def test_the_copy_differs_by_the_line_and_the_installed_package_is_left_alone(tmp_path: Path) -> None:
    real = package_folder("hesape") / "drivers/memory/look.py"
    before = real.read_text(encoding="utf-8")
    plant(saboteur(), tmp_path)
    copy = (tmp_path / "hesape/drivers/memory/look.py").read_text(encoding="utf-8")
    changed = [pair for pair in zip(before.splitlines(), copy.splitlines(), strict=True) if pair[0] != pair[1]]
    assert [new.strip() for _, new in changed] == [saboteur().instead]
    assert real.read_text(encoding="utf-8") == before
    ask = "import hesape.drivers.memory.look as found; print(found.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", ask], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "hesape/drivers/memory/look.py")


def test_one_that_does_no_harm_survives() -> None:
    found = run(saboteur(), ["C1", "C2"])
    assert (found.survived, found.unforeseen, dict(found.by)) == (["C1"], [], {})
    assert "C1 should catch it and didn't" in found.story


def test_one_that_another_rule_catches_is_told() -> None:
    counting = saboteur(
        line="lapsed = sum(place[0] <= now_us for place in lane.reserved.places())", instead="lapsed = 0"
    )
    found = run(counting, ["C1", "L3", "G1"])
    assert (found.survived, found.unforeseen) == ([], ["L3"])
    assert "L3 caught it and wasn't to: same_place: AssertionError" in found.story


def test_one_that_ends_its_process_is_caught_by_all() -> None:
    found = run(saboteur(instead="import os; os._exit(7)", fails=["C1", "C2"]), ["C1", "C2"])
    assert not found.story
    assert "the process ended with code 7" in found.by["C1"]


def test_a_rule_that_fails_once_and_not_again_has_caught_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([{"C1": "as foreseen", "L3": "by chance"}, {}])
    monkeypatch.setattr(running, "_probe", lambda *_, **__: next(answers))
    assert dict(run(saboteur(), ["C1", "L3"]).by) == {"C1": "as foreseen"}


def test_a_rule_of_timing_may_catch_one_or_not() -> None:
    timing = saboteur(may=["W1"])
    every = frozenset({"C1", "W1"})
    assert not Caught(timing, {"C1": "", "W1": ""}, every).story
    assert not Caught(timing, {"C1": ""}, every).story
    assert Caught(timing, {"W1": ""}, every).story


def test_the_table_says_which_saboteurs_a_rule_alone_catches() -> None:
    some = [saboteur(name="one"), saboteur(name="two", fails=["C1", "C2"]), saboteur(name="three", may=["W1"])]
    assert alone(some, "C1") == ["one", "three"]
    assert alone(some, "C2") == []
    lines = table(some).splitlines()
    [first] = [line for line in lines if line.startswith("| C1 |")]
    [second] = [line for line in lines if line.startswith("| C2 |")]
    assert first.endswith("| one, three | two |")
    assert second.endswith("|  | two |")
    assert lines[-1].endswith("| C1, perhaps W1 |")


def test_the_command_writes_the_table_and_runs_saboteurs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = (
        '[[saboteur]]\nname = "forgets"\ndoes = "Forgets."\ndriver = "memory"\nfile = "hesape/drivers/memory/look.py"\n'
        'line = "lapsed = sum(place[0] <= now_us for place in lane.reserved.places())"\ninstead = "lapsed = 0"\n'
        'fails = ["C1"]\n'
    )
    (tmp_path / "some.toml").write_text(entry, encoding="utf-8")
    page = tmp_path / "page.md"
    assert command.main([str(tmp_path), "--table", str(page)]) == 0
    assert "| C1 | " in page.read_text(encoding="utf-8")
    assert "| forgets |" in page.read_text(encoding="utf-8")
    assert command.main([str(tmp_path), "--rules", "C1"]) == 0
    assert "caught as foreseen" in capsys.readouterr().out
    assert command.main([str(tmp_path), "--rules", "C1", "L3"]) == 1
    assert "L3 caught it and wasn't to" in capsys.readouterr().out
