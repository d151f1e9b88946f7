"""A stranger's driver, built, installed and judged as a stranger would: from wheels, with nothing else of ours."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from hesape_conformance import catalogue, report

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).with_name("toy_driver")
TEST_FILE = TOY / "tests" / "test_conformance.py"
OTHERWISE = {**dict.fromkeys(("S4", "X1", "W1"), "refused-as-declared"), "sweep": "outside-declared-facts"}
"""What isn't passed: the rules of capabilities that the toy driver doesn't claim, and what needs a network."""
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the workspace: the driver's sources, wheels, and an environment with these wheels alone."""
    folder = tmp_path_factory.mktemp("stranger")
    shutil.copytree(TOY, folder / "hesape-toy", ignore=shutil.ignore_patterns("__pycache__", ".*_cache"))
    sources = [ROOT / "hesape-core", ROOT / "conformance", folder / "hesape-toy"]
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder / "wheels"), *map(str, sources))
    venv.create(folder / "clean", with_pip=False)
    wheels = sorted(map(str, (folder / "wheels").glob("*.whl")))
    constraints = str(ROOT / "constraints.txt")
    pip("--python", str(folder / "clean" / "bin" / "python"), "install", "--constraint", constraints, *wheels)
    return folder


@pytest.fixture(scope="module")
def runs(stranger: Path) -> dict[str, tuple[int, str]]:
    """Exit code and output of the one command, and of the driver's own test file; they run beside each other."""
    clean = stranger / "clean" / "bin"
    command = [clean / "hesape-conformance", "run", "toy", "--depth", "quick", "--report", "report.json"]
    own = [clean / "python", "-m", "pytest", "-q", "-W", "error", "hesape-toy/tests"]
    started = {name: start(stranger, *map(str, line)) for name, line in (("command", command), ("own", own))}
    ended = {name: process.communicate()[0] for name, process in started.items()}
    return {name: (started[name].returncode, text) for name, text in ended.items()}


def test_nothing_of_ours_is_installed_but_three_wheels(stranger: Path) -> None:
    asked = "import importlib.metadata as m; [print(d.name, d.read_text('direct_url.json')) for d in m.distributions()]"
    found = [line for line in answer(stranger, "-I", "-c", asked).splitlines() if "hesape" in line]
    assert len(found) == 3
    assert all(name in "".join(found) for name in ("hesape-core", "hesape-conformance", "hesape-toy"))
    assert all(".whl" in line and "editable" not in line for line in found)


def test_one_command_gives_it_its_report(stranger: Path, runs: dict[str, tuple[int, str]]) -> None:
    code, text = runs["command"]
    assert code == 0, text
    found: dict[str, Any] = json.loads((stranger / "report.json").read_text(encoding="utf-8"))
    assert found["outcome"] == "conformant"
    assert found["driver"] == {
        "name": "toy",
        "distribution": "hesape-toy",
        "version": "1.0",
        "contract": [1, 0],
        "capabilities": [],
        "facts": ["durable", "multi_process"],
        "kind": "store",
    }
    assert found["environment"]["server"] == "a journal of hesape-toy 1.0"
    assert found["known_failures"] == {}
    assert found["depth"] == "quick"


def test_every_rule_passed_but_those_of_what_it_neither_claims_nor_declares(
    stranger: Path, runs: dict[str, tuple[int, str]]
) -> None:
    found = json.loads((stranger / "report.json").read_text(encoding="utf-8"))
    assert found["verdicts"].keys() == catalogue.everything().keys()
    assert {rule_id: verdict for rule_id, verdict in found["verdicts"].items() if verdict != "passed"} == OTHERWISE


def test_its_report_is_one_that_this_suite_would_write(stranger: Path, runs: dict[str, tuple[int, str]]) -> None:
    found = json.loads((stranger / "report.json").read_text(encoding="utf-8"))
    assert report.problems(found) == []


def test_its_own_test_file_is_under_ten_lines_and_runs_every_rule(runs: dict[str, tuple[int, str]]) -> None:
    assert len(TEST_FILE.read_text(encoding="utf-8").splitlines()) < 10
    code, text = runs["own"]
    assert code == 0, text
    assert f"{len(catalogue.everything())} passed" in text


def test_an_application_uses_it_by_its_address(stranger: Path) -> None:
    program = (
        "import hesape; queue = hesape.connect('toy:///jobs.toy'); grant = hesape.system_grant('greet', 'acme');"
        "queue.push(grant, hesape.Job.new(grant, 'greet', {'who': 'you'})); queue.close();"
        "[job] = hesape.connect('toy:///jobs.toy').pop(); job.delete(); print(job.decode()['who'])"
    )
    assert answer(stranger, "-W", "error", "-c", program).split() == ["you"]
    assert (stranger / "jobs.toy").exists()


def test_its_file_is_written_anew_when_most_of_it_is_over(stranger: Path) -> None:
    program = (
        "import hesape; queue = hesape.connect('toy:///long.toy'); grant = hesape.system_grant('greet', 'acme');"
        "queue.bulk(grant, [hesape.Job.new(grant, 'greet', n) for n in range(5)]); jobs = queue.pop(n=3);"
        "[queue.counter('turns', 60).add() for _ in range(1_100)]; [job.delete() for job in jobs];"
        "other = hesape.connect('toy:///long.toy'); print([job.decode() for job in other.pop(n=9)]);"
        "print(other.counter('turns', 60).value())"
    )
    assert answer(stranger, "-c", program).splitlines() == ["[3, 4]", "1100"]
    assert len((stranger / "long.toy").read_bytes().splitlines()) < 500


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "HESAPE"))}
    environment = {**clean, "HESAPE_CONFORMANCE_DEPTH": "quick"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def answer(folder: Path, *arguments: str) -> str:
    process = start(folder, str(folder / "clean" / "bin" / "python"), *arguments)
    text, _ = process.communicate()
    assert process.returncode == 0, text
    return text


def pip(*arguments: str) -> None:
    line = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    done = subprocess.run(line, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
