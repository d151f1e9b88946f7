"""Runs saboteurs and compares what caught them with what was to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from hesape_conformance.engine import Verdict
from hesape_conformance.saboteurs.copying import plant
from hesape_conformance.sentences import SENTENCES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from hesape_conformance.saboteurs.model import Saboteur

LONGEST_S: Final = 600.0
_GREEN: Final = frozenset((Verdict.PASSED, Verdict.REFUSED, Verdict.OUTSIDE))


@attrs.frozen
class Caught:
    """What came of a saboteur on some rules."""

    saboteur: Saboteur
    by: Mapping[str, str]
    """The rules that it failed, each with the checks and what they said."""
    tried: frozenset[str]

    @property
    def survived(self) -> list[str]:
        """The rules that should have caught it and didn't."""
        return sorted((self.saboteur.fails & self.tried) - self.by.keys())

    @property
    def unforeseen(self) -> list[str]:
        """The rules that caught it and weren't to."""
        return sorted(self.by.keys() - self.saboteur.fails - self.saboteur.may)

    @property
    def story(self) -> str:
        """What isn't as it should be, empty when all is."""
        lines = [f"{rule} should catch it and didn't" for rule in self.survived]
        lines += [f"{rule} caught it and wasn't to: {self.by[rule]}" for rule in self.unforeseen]
        return "".join(f"\n{self.saboteur.name}: {line}" for line in lines)


def run(saboteur: Saboteur, rules: Collection[str] = (), *, all_checks: bool = False) -> Caught:
    """Run a saboteur on some rules, by default all.

    A rule that fails and wasn't to is run again by itself: a busy machine fails one now and then, a changed line each
    time.
    """
    tried = [rule for rule in SENTENCES if rule in rules or not rules]
    with tempfile.TemporaryDirectory(prefix="hesape-saboteur-") as folder:
        plant(saboteur, Path(folder))
        by = _probe(saboteur, folder, tried, all_checks=all_checks)
        for rule in Caught(saboteur, by, frozenset(tried)).unforeseen:
            if not _probe(saboteur, folder, [rule], all_checks=all_checks):
                del by[rule]
    return Caught(saboteur, by, frozenset(tried))


def _probe(saboteur: Saboteur, folder: str, rules: Collection[str], *, all_checks: bool) -> dict[str, str]:
    """Why each rule failed that did. One that the process didn't live to tell of has failed too."""
    command = [sys.executable, "-m", "hesape_conformance.saboteurs.probe", saboteur.driver, str(int(all_checks))]
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [*command, *rules],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    lines = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith('{"rule"')]
    told = {line["rule"]: line for line in lines}
    last = f"the process ended with code {ended.returncode}: {' '.join(ended.stderr.split())[-300:]}"
    return {
        rule: "; ".join(f"{name}: {detail}" for name, detail in told[rule]["bad"].items()) if rule in told else last
        for rule in rules
        if rule not in told or told[rule]["verdict"] not in _GREEN
    }
