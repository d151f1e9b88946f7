"""The benchmarks of the four stores: `make bench`, `make bench-peers`, and what is made of their results.

    python conformance/bench run [STORE ...]    # every store beside its plain script, and que
    python conformance/bench peers [STORE ...]  # every store beside other libraries on the same server
    python conformance/bench goals              # which goals the results reach
    python conformance/bench page               # docs/benchmarks.md and its picture, from the results

What `run` doesn't know it hands to `hesape-conformance bench`: --rounds, --jobs, --backlog, ...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import beside
import page
import results

from hesape_conformance.bench import goals

HERE = Path(__file__).parent


def run(arguments: argparse.Namespace, further: list[str]) -> int:
    """Measure one store after the other, each in a process of its own: what fails in one leaves the others alone."""
    arguments.results.mkdir(exist_ok=True)
    codes = []
    for store in arguments.stores or ("que", *results.STORES):
        file = arguments.results / f"{store}.json"
        if store == "que":
            command = [sys.executable, str(HERE / "que.py"), "--out", str(file)]
        else:
            script = HERE / "ceilings" / f"{store}.py"
            command = [sys.executable, "-m", "hesape_conformance.cli", "bench", store, *further]
            command += ["--ceiling", str(script), "--json", str(file)]
        codes.append(subprocess.run(command, check=False).returncode)
        print(flush=True)
    tell_goals(arguments, further)
    return max(codes)


def tell_goals(arguments: argparse.Namespace, further: list[str]) -> int:
    """Print every goal, what was measured, and whether that reaches it; 1 if one isn't reached."""
    judged = goals.judge(
        goals.load(HERE / "goals.toml"), results.reports(arguments.results), results.peers(arguments.results)
    )
    lines = [goals.HEAD, *goals.rows(judged)]
    widths = [max(len(line[at]) for line in lines) for at in range(5)]
    for line in lines:
        print("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())
    counts = {verdict: sum(it.verdict is verdict for it in judged) for verdict in goals.Verdict}
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return 1 if counts[goals.Verdict.NOT_REACHED] else 0


def main() -> int:
    """Do what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results", help="the folder of the reports")
    commands = parser.add_subparsers(required=True)
    for name, call in (("run", run), ("peers", beside.run), ("goals", tell_goals), ("page", page.write)):
        command = commands.add_parser(name)
        command.set_defaults(call=call)
        if call in {run, beside.run}:
            command.add_argument("stores", nargs="*", metavar="STORE", help=", ".join(results.STORES))
        if call is beside.run:
            beside.options(command)
    arguments, further = parser.parse_known_args()
    if further and arguments.call is not run:
        parser.error(f"unknown: {' '.join(further)}")
    return int(arguments.call(arguments, further))


if __name__ == "__main__":
    sys.exit(main())
