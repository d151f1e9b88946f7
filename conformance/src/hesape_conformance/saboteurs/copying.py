"""A copy of a package with one line changed: links to everything but the way to the one file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hesape_conformance.saboteurs.model import Saboteur


def package_folder(name: str) -> Path:
    """The folder of an installed top-level package."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        message = f"no package {name!r} is installed"
        raise ValueError(message)
    return Path(spec.submodule_search_locations[0])


def plant(saboteur: Saboteur, into: Path) -> None:
    """Make the copy in the empty folder `into`, which then goes before all others on the module path."""
    top, *way = Path(saboteur.file).parts
    here, there = package_folder(top), into / top
    for step in way:
        there.mkdir()
        for entry in here.iterdir():
            if entry.name != step:
                (there / entry.name).symlink_to(entry)
        here, there = here / step, there / step
    there.write_text(saboteur.alter(here.read_text(encoding="utf-8")), encoding="utf-8")
