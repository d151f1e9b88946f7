"""Run a folder of saboteurs on every rule, or write their table."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from hesape_conformance.saboteurs import model, running
from hesape_conformance.saboteurs.table import table


def main(arguments: list[str] | None = None) -> int:
    """0 when each was caught by exactly the rules that it names; 1 with what differs."""
    parser = argparse.ArgumentParser(prog="python -m hesape_conformance.saboteurs", description=__doc__)
    parser.add_argument("folder", type=Path, help="where their *.toml are")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table there, and run nothing")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these saboteurs")
    parser.add_argument("--rules", nargs="+", default=[], metavar="ID", help="on these rules and no others")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="how many run at the same time")
    options = parser.parse_args(arguments)
    saboteurs = [each for each in model.load(options.folder) if each.name in options.only or not options.only]
    if options.table is not None:
        options.table.write_text(table(saboteurs), encoding="utf-8")
        return 0
    good = True
    with ThreadPoolExecutor(options.at_once) as pool:
        for fine, text in pool.map(partial(_tried, rules=options.rules), saboteurs):
            good = good and fine
            sys.stdout.write(text)
            sys.stdout.flush()
    sys.stdout.write("\n")
    return 0 if good else 1


def _tried(saboteur: model.Saboteur, rules: list[str]) -> tuple[bool, str]:
    """Whether it was caught as it should be, and what to say of it."""
    try:
        caught = running.run(saboteur, rules, all_checks=True)
    except ValueError as error:  # its line isn't there any more
        return False, f"\n{error}"
    verdict = caught.story or f"\n{saboteur.name}: caught as foreseen"
    return not caught.story, verdict + "".join(f"\n    {rule}: {why}" for rule, why in caught.by.items())


if __name__ == "__main__":
    sys.exit(main())
