"""Prints pins: of what our distributions need to run the lowest versions they allow, of the tools those in constraints.

Arguments: the constraints file, then each distribution's pyproject.toml.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

LOWEST = re.compile(r"(?P<name>[\w.-]+)(?P<extra>\[\w+\])?>=(?P<version>[\d.]+)(,.*)?")
LEFT_OUT = {"psycopg-binary", "import-linter"}  # its version is psycopg's; lint needs a newer click


def normal(name: str) -> str:
    """The name in the one spelling that an index knows."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lowest(path: Path) -> dict[str, str]:
    """What a distribution needs, extras included, as names and pins."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras = [line for lines in project.get("optional-dependencies", {}).values() for line in lines]
    pins = {}
    for requirement in project["dependencies"] + extras:
        found = LOWEST.fullmatch(requirement)
        if found is None:
            sys.exit(f"{path} asks for {requirement!r}; expected NAME>=VERSION, so that its lowest version is known")
        if not found["name"].startswith("hesape-"):
            pins[normal(found["name"])] = f"{found['name']}{found['extra'] or ''}=={found['version']}"
    return pins


constraints, *projects = map(Path, sys.argv[1:])
pins = {name: pin for path in projects for name, pin in lowest(path).items()}
tools = [
    line
    for line in constraints.read_text(encoding="utf-8").split()
    if normal(line.split("==")[0]) not in {*pins, *LEFT_OUT}
]
print(*pins.values(), *tools, sep="\n")  # noqa: T201 - this is what it is for
