from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import attrs
import pytest

from hesape.demo import figures, plan
from hesape.demo.checks import judge
from hesape.demo.figures import Figures
from hesape.demo.ledger import Entry
from hesape.demo.plan import Item

COMMAND = (sys.executable, "-c", "import sys; from hesape.cli import main; sys.exit(main())", "demo")
SAMPLE = Path(plan.__file__).with_name("texts")


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))


def demo(*args: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HESAPE_CONNECTION": "of-somebody-else"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run((*COMMAND, *args), capture_output=True, text=True, timeout=60, check=False, env=environment)


def sabotage(folder: Path, code: str) -> Path:
    """A folder whose code runs at the start of every process of the demo."""
    (folder / "sitecustomize.py").write_text(textwrap.dedent(code))
    return folder


def failed_checks(done: subprocess.CompletedProcess[str]) -> list[str]:
    answer: dict[str, Any] = json.loads(done.stdout)
    return [check["name"] for check in answer["checks"] if not check["ok"]]


def test_the_demo_ends_well_and_says_what_happened() -> None:
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    for sentence in (
        "12 of 12 files were counted, each once and correctly, for harbour and hillside",
        "was killed with -9 in the middle of",
        "failed at first and was done in delivery 2",
        "parked: FileNotFoundError",
        "refused and never stored: ForgedError",
        "refused and never stored: PayloadTooLargeError",
        "parked: TamperedError",
        "8 of 8: everything is as it must be",
    ):
        assert sentence in done.stdout


def test_it_counts_the_files_of_a_folder_and_answers_in_json(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("Nur drei Wörter\n", encoding="utf-8")
    (tmp_path / "two.txt").write_text("a bb ccc dd", encoding="utf-8")
    (tmp_path / "picture.txt").write_bytes(b"\xff\xfe\x00")
    done = demo(str(tmp_path), "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"]) == (0, True), done.stdout + done.stderr
    counted = {job["file"]: job["figures"] for job in answer["jobs"] if job["state"] == "done"}
    assert counted == {
        "one.md": {"words": 3, "lines": 1, "longest": "Wörter"},
        "two.txt": {"words": 4, "lines": 1, "longest": "ccc"},
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.md", "picture.txt", "two.txt"]


def test_what_fits_no_payload_is_no_text_file(tmp_path: Path) -> None:
    for name in ("b\udcffd.txt", "new\nline.txt", "\U0001f600.txt"):
        (tmp_path / name).write_text("a bb")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "dangling.txt").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe.txt")
    assert [file.name for file in plan.texts(tmp_path)] == ["new\nline.txt", "\U0001f600.txt"]


def test_a_folder_without_texts_is_an_error_that_says_so(tmp_path: Path) -> None:
    done = demo(str(tmp_path))
    assert done.returncode == 1
    assert "has no text files" in done.stderr


def test_without_recovery_the_demo_fails(tmp_path: Path) -> None:
    broken = """
        from hesape.drivers.sqlite.driver import SqliteDriver
        SqliteDriver.retire = lambda self, worker: 0
        SqliteDriver.rescue = lambda self: 0
    """
    done = demo("--json", path=sabotage(tmp_path, broken))
    assert done.returncode == 1
    assert failed_checks(done) == ["counted", "recovered", "nothing left"]


def test_when_seals_arent_checked_the_demo_fails(tmp_path: Path) -> None:
    broken = """
        from hesape import envelope
        from hesape.jobs import receiving
        envelope._check_seal = lambda frame, body, keys: None
        receiving.checked = lambda row, keys: envelope.decode(row.envelope, keys)
    """
    done = demo("--json", path=sabotage(tmp_path, broken))
    assert done.returncode == 1
    assert "tampered" in failed_checks(done)


def test_when_grants_arent_checked_the_demo_fails(tmp_path: Path) -> None:
    broken = """
        from hesape.jobs import preparing
        preparing._match = lambda granted, job: None
    """
    done = demo("--json", path=sabotage(tmp_path, broken))
    assert done.returncode == 1
    assert "forged" in failed_checks(done)


def test_when_the_workers_dont_start_the_demo_fails(tmp_path: Path) -> None:
    broken = """
        from hesape.worker import supervisor
        supervisor.Supervisor.run = lambda self: 1
    """
    done = demo(path=sabotage(tmp_path, broken))
    assert done.returncode == 1
    assert "0 of 12 files were counted" in done.stdout


# What is judged, entry by entry.

KILLED = [(7, "a")]


def story() -> tuple[list[Item], list[Entry]]:
    found = Figures(3, 1, "three")
    items = [
        Item(job="a", tenant="harbour", file="a.txt", fate="counted", figures=found),
        Item(job="b", tenant="hillside", file="b.txt", fate="counted", figures=found, stumbles=1),
        Item(job="c", tenant="harbour", file="c.txt", fate="parked"),
        Item(job="d", tenant="harbour", file="d.txt", fate="tampered"),
        Item(job="e", tenant="harbour", file="e.txt", fate="forged", refusal="ForgedError: no"),
        Item(job="f", tenant="harbour", file="f.txt", fate="oversized", refusal="PayloadTooLargeError: no"),
    ]
    entries = [
        Entry("a", "done", "harbour", "a.txt", 2, 8, found, None, (7, 8)),
        Entry("b", "done", "hillside", "b.txt", 2, 8, found, None, (8, 8)),
        Entry("c", "failed", "harbour", None, 3, None, None, "FileNotFoundError: c.txt\n\nTraceback", (8, 8, 8)),
        Entry("d", "failed", "harbour", None, 1, None, None, "TamperedError: seal", ()),
    ]
    return items, entries


def verdicts(entries: list[Entry], killed: list[tuple[int, str]] = KILLED) -> set[str]:
    return {check.name for check in judge(story()[0], entries, killed) if not check.ok}


def test_a_story_that_went_as_it_must_passes() -> None:
    assert verdicts(story()[1]) == set()


@pytest.mark.parametrize(
    ("position", "change", "failing"),
    [
        (0, {"figures": Figures(4, 1, "three")}, {"counted"}),
        (0, {"tenant": "hillside"}, {"counted"}),
        (0, {"attempt": 1}, {"recovered"}),
        (0, {"process": 7}, {"recovered"}),
        (0, {"starts": (8, 8)}, {"recovered"}),
        (0, {"state": "running"}, {"counted", "recovered", "nothing left"}),
        (1, {"attempt": 1}, {"retried"}),
        (1, {"state": "failed"}, {"counted", "retried", "nothing left"}),
        (2, {"state": "waiting"}, {"parked", "nothing left"}),
        (2, {"error": "OSError: other"}, {"parked"}),
        (3, {"starts": (8,)}, {"tampered"}),
        (3, {"error": "ValueError: other"}, {"tampered"}),
        (3, {"job": "e"}, {"tampered", "forged"}),
        (3, {"job": "f"}, {"tampered", "oversized"}),
        (3, {"job": "stranger"}, {"tampered", "nothing left"}),
    ],
)
def test_what_the_store_says_decides(position: int, change: dict[str, Any], failing: set[str]) -> None:
    entries = story()[1]
    entries[position] = attrs.evolve(entries[position], **change)
    assert verdicts(entries) == failing


def test_a_result_too_many_or_too_few_is_seen() -> None:
    entries = story()[1]
    assert "counted" in verdicts([*entries, entries[0]])
    assert "counted" in verdicts(entries[1:])
    assert "tampered" in verdicts(entries[:3])


def test_without_a_kill_nothing_was_recovered() -> None:
    assert verdicts(story()[1], []) == {"recovered"}


def test_the_bundled_texts_are_a_dozen_and_none_is_empty() -> None:
    files = plan.texts(SAMPLE)
    assert len(files) == 12
    assert min(figures.count(figures.read(file)).words for file in files) > 50


def test_words_are_counted_as_people_do() -> None:
    assert figures.count("It's a well-known fact:\n42 cats_and dogs") == Figures(8, 2, "well-known")
    assert figures.count("") == Figures(0, 0, "")
