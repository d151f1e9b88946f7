"""Runs the suite beside the command, in processes of its own, so that nothing that a driver does reaches the report.

Where the store is embedded three processes share the rules: each has the harness open and begins at a place of its own
among them, and whoever comes first to a rule runs it. A server is one thing for all its clients, and
some rules cut their sessions or fill it, so there one process runs all.

An embedded store's temporary files lie in memory where there is room. No rule pulls the plug, and a disk takes longer
to sync the few thousand commits of a quick run than the run takes; `TMPDIR`, or the harness's URL, names another place.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree as ET

import attrs

from hesape.driver import Fact
from hesape_conformance.plugin import PLACE_VARIABLE, RESULTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hesape_conformance.harness import Harness

USAGE = 4
"""The exit code of bad usage, and of a harness that finds no server."""
IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder made there is a private one
SHARE: Final = 3
"""Processes: a third of a run is waiting."""
ROOM: Final = 2**30
"""Bytes that must be free there: a full run stores a hundred thousand jobs."""


@attrs.frozen(kw_only=True)
class Order:
    """What a run is to test, and how."""

    driver: str
    url: str = ""
    depth: str = "default"
    seed: int = 0
    only: tuple[str, ...] = ()
    junit: Path | None = None


def run(order: Order, harness: type[Harness]) -> tuple[int, dict[str, Any] | None]:
    """The exit code, and what the plugin found; `None` when a process didn't live to tell it."""
    embedded = _is_embedded(harness)
    count = SHARE if embedded and len(order.only) != 1 else 1
    place = place_of_files() if embedded else None
    with tempfile.TemporaryDirectory(prefix="hesape-conformance-", dir=place) as name:
        folder = Path(name)
        folder.joinpath("pytest.ini").write_text("[pytest]\nfaulthandler_timeout = 150\n", encoding="utf-8")
        folder.joinpath("files").mkdir()
        more = {} if place is None else {"TMPDIR": str(folder / "files")}
        started = [_start(order, folder, number, count, more) for number in range(count)]
        try:
            codes = _ended(started)
        finally:
            for process in started:
                process.kill()
        if order.junit is not None:
            _join(sorted(folder.glob("*.xml")), order.junit)
        parts = sorted(folder.glob("*.json"))
        code = next((code for code in (USAGE, *codes) if code and code in codes), 0)
        return code, _merged(parts) if len(parts) == count else None


def place_of_files() -> Path | None:
    """Where an embedded store's temporary files are quickest; `None`: where the environment says."""
    if "TMPDIR" in os.environ or not os.access(IN_MEMORY, os.W_OK) or shutil.disk_usage(IN_MEMORY).free < ROOM:
        return None
    return IN_MEMORY


def _is_embedded(harness: type[Harness]) -> bool:
    try:
        return Fact.NETWORKED not in harness.spec().facts
    except Exception:  # noqa: BLE001 - the run will tell what is wrong with it
        return False


def _start(order: Order, folder: Path, number: int, count: int, more: Mapping[str, str]) -> subprocess.Popen[str]:
    where = str(Path(__file__).with_name("test_installed.py"))
    tests = [f"{where}::test_rule[{rule_id}]" for rule_id in order.only] or [where]
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini"), f"--rootdir={folder}"]
    command += ["-p", "no:cacheprovider", "-p", "hesape_conformance.plugin", "--tb=short", "--no-header", *tests]
    if order.junit is not None:
        command.append(f"--junitxml={folder / f'{number}.xml'}")
    environment = {
        **os.environ,
        **more,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        RESULTS_VARIABLE: str(folder / f"{number}.json"),
        PLACE_VARIABLE: f"{number}/{count}",
        "HESAPE_CONFORMANCE_DRIVER": order.driver,
        "HESAPE_CONFORMANCE_URL": order.url,
        "HESAPE_CONFORMANCE_DEPTH": order.depth,
        "HESAPE_CONFORMANCE_SEED": str(order.seed),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE if number else None, text=True)


def _ended(started: Sequence[subprocess.Popen[str]]) -> list[int]:
    """The exit codes; what others than the first printed comes after what that did."""
    for process in started:
        printed, _ = process.communicate()
        sys.stdout.write(printed or "")
        sys.stdout.flush()
    return [process.returncode for process in started]


def _merged(parts: Sequence[Path]) -> dict[str, Any]:
    found = [json.loads(part.read_text(encoding="utf-8")) for part in parts]
    return {
        "run": next((each["run"] for each in found if each["run"]), None),
        "results": [result for each in found for result in each["results"]],
        "problems": [problem for each in found for problem in each["problems"]],
    }


def _join(parts: Sequence[Path], into: Path) -> None:
    """Write the test suites of all parts into one file, as a build server reads it."""
    whole = ET.Element("testsuites")
    for part in parts:
        whole.extend(ET.parse(part).getroot())  # noqa: S314 - pytest wrote it just now
    ET.ElementTree(whole).write(into, encoding="utf-8", xml_declaration=True)
