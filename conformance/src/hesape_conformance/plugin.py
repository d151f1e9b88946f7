"""The pytest plugin of the command: it collects what every rule came to and writes it where the command reads it."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

RESULTS_VARIABLE = "HESAPE_CONFORMANCE_RESULTS"
"""The file of the results. Beside it the processes of one run mark the rules that they began."""
PLACE_VARIABLE = "HESAPE_CONFORMANCE_PLACE"

_found: dict[str, Any] = {"run": None, "results": [], "problems": []}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin elsewhere than the processes that share the rules."""
    number, count = map(int, os.environ.get(PLACE_VARIABLE, "0/1").split("/"))
    first = len(items) * number // count
    items[:] = items[first:] + items[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """Take a rule over, or leave it to the process that began it."""
    mark = Path(os.environ[RESULTS_VARIABLE]).with_name(hashlib.sha256(item.nodeid.encode()).hexdigest())
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return True
    return None


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


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish() -> Generator[None, object, object]:
    """Write it, with what the end of a harness raised whose last rule another process had run."""
    try:
        return (yield)
    except Exception as error:
        _found["problems"].append(f"the end of the run: {type(error).__name__}: {error}")
        raise
    finally:
        Path(os.environ[RESULTS_VARIABLE]).write_text(json.dumps(_found), encoding="utf-8")
