"""The page that says which saboteurs each rule catches, and which of them no other rule would."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hesape_conformance.sentences import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape_conformance.saboteurs.model import Saboteur

_HEAD: Final = """\
# Which saboteur each rule catches

A saboteur is a driver, or a core, that differs from a real one by one line. Each has the exact set of rules that it
must fail, written down before it first ran; the tests run them and compare. So nobody can weaken a rule, or take one
out, without a saboteur that survives: those in the column "alone" are caught by no other rule.

This page is generated from `conformance/tests/saboteurs/*.toml` by

    python -m hesape_conformance.saboteurs conformance/tests/saboteurs --table docs/saboteurs.md

and a test fails when it is stale. Without `--table` the command runs every saboteur on every rule, which takes a while;
the tests run each on its own rules and on a sample of the others, or, with `HESAPE_SABOTEURS=all`, on every rule.

## By rule

| rule | what it demands | alone | with other rules |
| --- | --- | --- | --- |
"""


def alone(saboteurs: Sequence[Saboteur], rule: str) -> list[str]:
    """The saboteurs that would survive without this rule: nothing else is sure to catch them."""
    return [saboteur.name for saboteur in saboteurs if saboteur.fails == {rule}]


def table(saboteurs: Sequence[Saboteur]) -> str:
    """The page."""
    lines = [_HEAD]
    for rule, sentence in SENTENCES.items():
        mine = alone(saboteurs, rule)
        others = [each.name for each in saboteurs if rule in each.fails and each.name not in mine]
        lines.append(f"| {rule} | {sentence} | {', '.join(mine)} | {', '.join(others)} |\n")
    lines.append("\n## By saboteur\n\n| saboteur | what it does wrong | run with | its line is in | fails |\n")
    lines.append("| --- | --- | --- | --- | --- |\n")
    for each in saboteurs:
        fails = ", ".join(rule for rule in SENTENCES if rule in each.fails)
        fails += "".join(f", perhaps {rule}" for rule in SENTENCES if rule in each.may)
        lines.append(f"| {each.name} | {each.does} | {each.driver} | `{each.file}` | {fails} |\n")
    return "".join(lines)
