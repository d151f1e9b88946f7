"""The pytest plugin of the command: it collects what every rule came to and writes it where the command reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

RESULTS_VARIABLE = "HESAPE_CONFORMANCE_RESULTS"

_found: dict[str, Any] = {"run": None, "results": [], "problems": []}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep what a test recorded, and what went wrong beside it."""
    properties = dict(report.user_properties)
    if report.when == "call":
        if "hesape_result" in properties:
            _found["run"] = json.loads(str(properties["hesape_run"]))
            _found["results"].append(json.loads(str(properties["hesape_result"])))
        elif report.failed:
            _found["problems"].append(f"{report.nodeid}: {report.longreprtext[-500:]}")
    elif report.failed:
        _found["problems"].append(f"{report.nodeid} ({report.when}): {report.longreprtext[-500:]}")


def pytest_sessionfinish() -> None:
    """Write it."""
    if path := os.environ.get(RESULTS_VARIABLE):
        Path(path).write_text(json.dumps(_found), encoding="utf-8")
