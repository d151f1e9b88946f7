"""Writes what docs/rules.md takes from the suite: each rule's sentence and the names of its checks.

`python docs/rules_page.py` brings the page up to date and keeps what was written by hand between the two. `--check`
changes nothing and exits with 1 when the page is stale.
"""
# ruff: noqa: INP001 - a program beside the pages, no package

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from hesape_conformance import catalogue
from hesape_conformance.sentences import SENTENCES

PAGE: Final = Path(__file__).with_name("rules.md")
_SECTION: Final = re.compile(
    r"^### ([A-Z]\d+)$\n\n\*\*.*?\*\*\n\n(.*?)\n\n(?:Checks: .*?\n|No check .*?\n)(?=\n|\Z)", re.MULTILINE | re.DOTALL
)


def renewed(page: str) -> str:
    """The page with sentences and checks as the installed suite has them."""
    found = [match[1] for match in _SECTION.finditer(page)]
    if found != list(SENTENCES):
        wrong = sorted(set(SENTENCES) ^ set(found)) or "their order"
        message = f"{PAGE.name}: expected one section a rule, in the order of the contract; wrong: {wrong}"
        raise ValueError(message)
    return _SECTION.sub(lambda match: _section(match[1], match[2]), page)


def _section(rule_id: str, text: str) -> str:
    rule = catalogue.rules().get(rule_id)
    names = ", ".join(f"`{check.name}`" for check in rule.checks) if rule else ""
    checks = f"Checks: {names}." if names else "No check proves it yet."
    return f"### {rule_id}\n\n**{SENTENCES[rule_id]}**\n\n{text}\n\n{checks}\n"


def main(arguments: list[str]) -> int:
    """Bring the page up to date, or say whether it is."""
    before = PAGE.read_text(encoding="utf-8")
    after = renewed(before)
    if "--check" in arguments:
        sys.stderr.write("" if before == after else f"{PAGE.name} is stale: run python docs/{Path(__file__).name}\n")
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
