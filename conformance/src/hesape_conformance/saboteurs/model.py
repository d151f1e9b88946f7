"""What a saboteur is, and how a folder of them is read.

    [[saboteur]]
    name = "forgets-the-tenant"
    does = "Looks a failed job up whatever its tenant."
    driver = "mine"
    file = "hesape_mine/looking.py"
    within = "def find"
    line = "if row.tenant != tenant:"
    instead = "if not row.tenant:"
    fails = ["G7", "N4"]

`file` is a path from the folder that holds the package. `line` is one whole line of it without its indentation, the
only such line, or the first one after a line that begins with `within`. `fails` are the rules that must fail, and no
others may, but for those in `may`, which fail by luck of timing.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import attrs

from hesape_conformance.sentences import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def _rules(ids: Iterable[str]) -> frozenset[str]:
    return frozenset(ids)


@attrs.frozen(kw_only=True)
class Saboteur:
    """One changed line, and the rules that must notice."""

    name: str
    does: str
    """What it does wrong, as a sentence."""
    driver: str
    """The driver that it is run with: its own, or the quickest one when the line is the core's."""
    file: str
    line: str
    instead: str
    within: str = ""
    fails: frozenset[str] = attrs.field(converter=_rules)
    """Exactly the rules that must fail."""
    may: frozenset[str] = attrs.field(default=frozenset(), converter=_rules)
    """Rules of timing that may fail as well."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can't be one line's difference, and rules that don't exist."""
        unknown = sorted((self.fails | self.may) - SENTENCES.keys())
        if unknown or not self.fails or self.fails & self.may:
            message = f"saboteur {self.name!r}: expected rules that exist, some in fails, none in both; found {unknown}"
            raise ValueError(message)
        if "\n" in self.line + self.instead or self.line == self.instead:
            message = f"saboteur {self.name!r}: expected one line instead of another one"
            raise ValueError(message)

    def alter(self, text: str) -> str:
        """The text of its file with the line changed; `ValueError` when the line isn't there."""
        lines = text.split("\n")
        start = 0
        if self.within:
            start = next((n for n, line in enumerate(lines) if line.strip().startswith(self.within)), len(lines))
        places = [n for n, line in enumerate(lines) if n >= start and line.strip() == self.line]
        if not places or (len(places) > 1 and not self.within):
            message = f"saboteur {self.name!r}: {self.file} has {len(places)} lines {self.line!r}, expected one"
            raise ValueError(message)
        old = lines[places[0]]
        lines[places[0]] = old[: len(old) - len(old.lstrip())] + self.instead
        return "\n".join(lines)


def load(folder: Path) -> list[Saboteur]:
    """Every saboteur of a folder, by file and by place in it; `ValueError` says which one can't be read."""
    found: dict[str, Saboteur] = {}
    for path in sorted(folder.glob("*.toml")):
        entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8"))["saboteur"]
        for entry in entries:
            saboteur = Saboteur(**entry)
            if saboteur.name in found:
                message = f"{path.name}: the saboteur {saboteur.name!r} is there twice"
                raise ValueError(message)
            found[saboteur.name] = saboteur
    return list(found.values())
