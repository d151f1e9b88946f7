"""What the documentation promises to a newcomer: a job in six lines, and another store by one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hesape_postgres.testing import PrivatePostgres

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
MINUTE = 60

JOBS = """\
import hesape

app = hesape.App()


@app.handler("greet")
def greet(job: hesape.Job, who: str) -> None:
    with open("greeted.txt", "a") as file:
        print(f"{who} on {job.connection_name}", file=file)
"""
CONFIGURATION = """\
default = "main"

[connections.main]
url = "sqlite:///jobs.db"

[connections.orders]
url = "${DATABASE_URL}"
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


def test_a_first_job_takes_six_lines_and_less_than_a_minute(tmp_path: Path) -> None:
    section = re.split(r"^## ", TUTORIAL, flags=re.MULTILINE)[1]
    assert section.startswith("Six lines")
    python, shell = re.findall(r"^```(?:python|sh)\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert len([line for line in (python + shell).splitlines() if line.strip()]) == 6

    page = tmp_path / "page.md"
    page.write_text(section, encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    said = run(sys.executable, str(DOCS / "blocks.py"), str(page), folder=folder)
    assert said == "1 blocks\n", "the shell's, whose output was compared"
    assert {path.suffix for path in folder.iterdir() if path.is_file()} == {".py", ".db"}


def test_one_changed_line_leads_to_another_store_and_the_jobs_of_both_run(
    tmp_path: Path, postgres: PrivatePostgres
) -> None:
    def hesape(*arguments: str) -> str:
        return run(sys.executable, "-m", "hesape", *arguments, folder=tmp_path, DATABASE_URL=postgres.url)

    def push(who: str) -> None:
        hesape("push", "greet", f'{{"who": "{who}"}}', "--tenant", "acme", "--action", "greet")

    (tmp_path / "jobs.py").write_text(JOBS, encoding="utf-8")
    configuration = tmp_path / "hesape.toml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    push("anna")
    push("bert")
    hesape("work", "--app", "jobs:app", "--once")

    after = CONFIGURATION.replace('default = "main"', 'default = "orders"')
    changed = [pair for pair in zip(CONFIGURATION.splitlines(), after.splitlines(), strict=True) if len({*pair}) == 2]
    assert len(changed) == 1
    configuration.write_text(after, encoding="utf-8")
    push("carl")
    hesape("work", "--app", "jobs:app", "--stop-when-empty")
    hesape("work", "main", "--app", "jobs:app", "--stop-when-empty")

    greeted = (tmp_path / "greeted.txt").read_text(encoding="utf-8").splitlines()
    assert greeted == ["anna on main", "carl on orders", "bert on main"]
    for connection in ("main", "orders"):
        assert '"failed": 0' in hesape("status", "-c", connection, "--json")


def run(*command: str, folder: Path, **variables: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HESAPE_")}
    done = subprocess.run(
        command, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False, timeout=MINUTE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
