"""The documentation: its blocks run, its site builds without a warning, and what it lists is what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hesape.cli.root import COMMANDS
from hesape.driver import Capability, Driver, Fact
from hesape_conformance.engine import Verdict
from hesape_postgres.testing import PrivatePostgres

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
GUIDE = (DOCS / "writing-a-driver.md").read_text(encoding="utf-8")
NEEDS_POSTGRES = "<!-- needs: postgres -->"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivatePostgres]:
    with PrivatePostgres() as server:
        yield server


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_in_an_empty_folder(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("HESAPE_")}
    if page.read_text(encoding="utf-8").startswith(NEEDS_POSTGRES):
        variables["DATABASE_URL"] = database(request.getfixturevalue("postgres"), f"docs_{page.stem}")
    run(sys.executable, str(DOCS / "blocks.py"), str(page), folder=tmp_path, variables=variables)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```python\nraise ValueError('wrong')\n```\n", "ValueError: wrong"),
        ("```sh\nfalse\n```\n", "it ended with 1"),
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "expected"),
        ("```toml\na =\n```\n", "TOMLDecodeError"),
        ("```\nx\n```\n", "no language"),
        ("<!-- not run: why -->\n```sh\nfalse\n```\n", "it ended with 1"),
        ("<!-- files of: docs -->\n`blocks.py`:\n\n```python\nnever there\n```\n", "isn't in docs/blocks.py"),
    ],
)
def test_a_block_that_doesnt_do_what_the_page_says_is_found(page: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    line = [sys.executable, str(DOCS / "blocks.py"), "page.md"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    site = str(tmp_path / "site")
    run(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site, folder=ROOT)
    assert (tmp_path / "site" / "index.html").exists()
    assert "_hand_back" in (tmp_path / "site" / "reference" / "driver.html").read_text(encoding="utf-8")


def test_the_rules_page_has_the_sentences_and_checks_of_the_suite() -> None:
    run(sys.executable, str(DOCS / "rules_page.py"), "--check", folder=ROOT)


def test_the_page_for_operators_shows_every_command_and_no_other() -> None:
    shown = set(re.findall(r"(?<!from )\bhesape ([a-z]+)\b", (DOCS / "operating.md").read_text(encoding="utf-8")))
    assert shown == set(COMMANDS)


def test_the_guide_names_every_method_claim_and_verdict() -> None:
    named = set(re.findall(r"`(\w[\w-]*)", GUIDE))
    methods = Driver.__abstractmethods__
    assert methods - named == set()
    assert {*Capability, *Fact, *Verdict} - named == set()


def database(server: PrivatePostgres, name: str) -> str:
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute(f'create database "{name}"'.encode())
    return f"{server.url.rpartition('/')[0]}/{name}"


def run(*command: str, folder: Path, variables: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
