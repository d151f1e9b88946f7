"""What a type checker must reject: pushing without a grant, building a grant, storing what wasn't prepared."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent / "rejected" / "no_grant.py"


def test_a_type_checker_rejects_exactly_the_marked_lines() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(EXAMPLE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    found = {int(line) for line in re.findall(r"no_grant\.py:(\d+): error", run.stdout)}
    lines = EXAMPLE.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# rejected" in line}
    assert len(marked) == 12
    assert found == marked, run.stdout + run.stderr
