"""The table of cases names tests and rules that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hesape_conformance.sentences import SENTENCES

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CASES = frozenset(
    {1, 3, 5, 6, 9, 10, 11, 13, 14, 16, 17, 18, 20, 21, 23, 25, 27, 28, 30, 31, 32, 33, 34, 36, 37, 38, 41, 42, 43, 45}
    | {47, 49, 50, 52, 54, 55, 56}
)
"""All of them: numbers are permanent."""
SUITES = (
    "hesape-core/tests/stores/test_memory_conformance.py",
    "hesape-core/tests/stores/test_sqlite_conformance.py",
    "hesape-mysql/tests/test_conformance.py",
    "hesape-postgres/tests/test_conformance.py",
    "hesape-redis/tests/test_conformance.py",
)


def rows() -> list[tuple[int, list[str], list[str]]]:
    """Each case's number, rules and tests."""
    found = []
    for line in (HERE / "CASES.md").read_text(encoding="utf-8").splitlines():
        number, _, rest = line.removeprefix("| ").partition(" | ")
        if number.isdecimal():
            _, rules, tests = rest.split(" | ")
            found.append((int(number), rules.split(), re.findall(r"`([^`]+)`", tests)))
    return found


def test_every_case_is_there_once_and_has_a_test() -> None:
    numbers = [number for number, _, _ in rows()]
    assert sorted(numbers) == numbers == sorted(CASES)
    assert all(tests for _, _, tests in rows())


def test_everything_that_the_table_names_exists() -> None:
    rules = {rule for _, named, _ in rows() for rule in named}
    named = {test for _, _, tests in rows() for test in tests}
    assert rules <= SENTENCES.keys()
    wanted = named | {f"{suite}::test_rule[{rule}]" for suite in SUITES for rule in rules}
    files = sorted({test.partition("::")[0] for test in wanted}, reverse=True)  # the suite wants to be imported first
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *files]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)
    ids = set(collected.stdout.splitlines())
    there = ids | {test.partition("[")[0] for test in ids}
    assert collected.returncode == 0, collected.stdout + collected.stderr
    assert wanted <= there, sorted(wanted - there)
