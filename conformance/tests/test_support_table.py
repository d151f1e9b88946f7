"""The README's support table says what the reports say, and the reports are those of this suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hesape_conformance import report, support

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conformance" / "reports").glob("*.json"))


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def test_every_store_has_its_report() -> None:
    assert [file.stem for file in FILES] == ["memory", "mysql", "postgres", "redis", "sqlite"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_report_is_unchanged_and_of_this_suite(file: Path) -> None:
    found = read(file)
    assert report.problems(found) == []
    assert (found["driver"]["name"], found["outcome"]) == (file.stem, "conformant")


def test_the_readme_has_the_table_of_the_reports() -> None:
    assert support.table(read(file) for file in FILES) in (ROOT / "README.md").read_text(encoding="utf-8")
