"""The command and the one-file front, as their users start them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from hesape_conformance import running
from hesape_conformance.cli import main

if TYPE_CHECKING:
    from pathlib import Path

HARNESS = """
import pytest
from hesape.drivers.memory.testing import MemoryHarness
from hesape_conformance.harness import HarnessUnavailableError
from hesape_conformance.suite import *

class Mine(MemoryHarness):
    {body}

@pytest.fixture(scope="session")
def hesape_harness():
    return Mine()
"""


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.output


def one_file(folder: Path, body: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_conformance.py"
    file.write_text(HARNESS.format(body=body), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, str(file), *options]
    environment = {**os.environ, "HESAPE_CONFORMANCE_DEPTH": "quick"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=folder)


def test_rules_are_listed_and_explained() -> None:
    code, text = invoke("rules")
    assert code == 0
    assert "L4   Only the current delivery" in text
    code, text = invoke("rules", "X1")
    assert code == 0
    assert "where transactions is claimed" in text
    assert invoke("rules", "Z9")[0] == 4


@pytest.mark.parametrize("arguments", [("run", "nobody"), ("run",), ("run", "memory", "--only", "Z9"), ("walk",)])
def test_bad_usage_and_a_missing_harness_end_with_code_4(arguments: tuple[str, ...]) -> None:
    assert invoke(*arguments)[0] == 4


def test_a_run_of_some_rules_is_incomplete_and_its_report_verifies(tmp_path: Path) -> None:
    file, page, junit = tmp_path / "report.json", tmp_path / "report.md", tmp_path / "report.xml"
    options = ("--depth", "quick", "--report", str(file), "--markdown", str(page), "--junit", str(junit))
    code, text = invoke("run", "memory", "--only", "C1", "--only", "X1", *options)
    assert code == 3
    assert "incomplete" in text
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["verdicts"]["C1"] == "passed"
    assert report["verdicts"]["X1"] == "refused-as-declared"
    assert report["verdicts"]["G1"] == "not-run"
    assert report["driver"]["distribution"] == "hesape-core"
    assert invoke("verify", str(file))[0] == 3
    assert "| C1 | passed |" in page.read_text(encoding="utf-8")
    assert "test_rule[C1]" in junit.read_text(encoding="utf-8")
    report["verdicts"]["G1"] = "passed"
    file.write_text(json.dumps(report), encoding="utf-8")
    code, text = invoke("verify", str(file))
    assert code == 1
    assert "changed after it was written" in text


def test_processes_share_the_rules_of_an_embedded_store_and_none_is_run_twice(tmp_path: Path) -> None:
    file, junit = tmp_path / "report.json", tmp_path / "report.xml"
    rules = ("T3", "C1", "C2", "X1")
    only = [word for rule in rules for word in ("--only", rule)]
    code, text = invoke("run", "memory", "--depth", "quick", *only, "--report", str(file), "--junit", str(junit))
    assert code == 3, text
    verdicts = json.loads(file.read_text(encoding="utf-8"))["verdicts"]
    assert {rule for rule, verdict in verdicts.items() if verdict != "not-run"} == set(rules)
    suites = ET.parse(junit).getroot().findall("testsuite")  # noqa: S314 - the run wrote it
    assert len(suites) == running.SHARE
    ran = [case.get("name") for suite in suites for case in suite.findall("testcase")]
    assert sorted(map(str, ran)) == sorted(f"test_rule[{rule}]" for rule in rules)


def test_an_embedded_store_lies_in_memory_where_there_is_room_and_nobody_chose_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(running, "IN_MEMORY", tmp_path)
    monkeypatch.setattr(running, "ROOM", shutil.disk_usage(tmp_path).free // 2)
    assert running.place_of_files() == tmp_path
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert running.place_of_files() is None
    monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(running, "ROOM", shutil.disk_usage(tmp_path).total)
    assert running.place_of_files() is None
    monkeypatch.setattr(running, "IN_MEMORY", tmp_path / "missing")
    assert running.place_of_files() is None


def test_what_a_harness_raises_at_its_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        HARNESS.format(body="def stop(self): raise OSError('it would not stop')"), encoding="utf-8"
    )
    results = tmp_path / "results.json"
    (tmp_path / hashlib.sha256(b"test_mine.py::test_rule[C2]").hexdigest()).touch()  # another process has the last rule
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir=.", "-p", "no:cacheprovider"]
    command += ["-p", "hesape_conformance.plugin", "test_mine.py", "-k", "C1 or C2"]
    environment = {**os.environ, "HESAPE_CONFORMANCE_RESULTS": str(results), "HESAPE_CONFORMANCE_DEPTH": "quick"}
    subprocess.run(command, check=False, capture_output=True, env=environment, cwd=tmp_path)
    found = json.loads(results.read_text(encoding="utf-8"))
    assert [result["rule"] for result in found["results"]] == ["C1"]
    assert "it would not stop" in found["problems"][0]


def test_what_is_no_report_does_not_verify(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", "null"):
        file = tmp_path / "report.json"
        file.write_text(text, encoding="utf-8")
        assert invoke("verify", str(file))[0] == 1


def test_one_file_runs_the_suite_and_its_test_ids_are_rule_ids(tmp_path: Path) -> None:
    done = one_file(tmp_path, "pass", "-k", "C1 or C2", "-v")
    assert done.returncode == 0, done.stdout
    assert "test_rule[C1] PASSED" in done.stdout
    assert "2 passed" in done.stdout


def test_without_a_server_the_run_ends_with_code_4(tmp_path: Path) -> None:
    done = one_file(tmp_path, "def start(self): raise HarnessUnavailableError('nothing listens')", "-k", "C1")
    assert done.returncode == 4
    assert "nothing listens" in done.stdout + done.stderr


def test_a_stale_known_failure_fails_and_an_unknown_one_ends_the_run(tmp_path: Path) -> None:
    done = one_file(tmp_path, "known_failures = {'C2': 'because'}", "-k", "C2")
    assert done.returncode == 1
    assert "listed as a known failure: because" in done.stdout
    done = one_file(tmp_path, "known_failures = {'Z9': 'because'}", "-k", "C2")
    assert done.returncode == 4
