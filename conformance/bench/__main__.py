"""Every store beside its plain script, in one run: `make bench`, or this folder with the names of stores."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from hesape_conformance.bench.run import Size, measure, table, to_json
from hesape_conformance.installed import find_harness

HERE = Path(__file__).parent


def main() -> int:
    """Measure, print a table a store, and write the JSON where it is asked for."""
    known = [*sorted(path.stem for path in (HERE / "ceilings").glob("*.py")), "que"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stores", nargs="*", default=known, metavar="store", help=", ".join(known))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backlog", type=int, default=1_000_000, help="scheduled jobs among which pops are timed")
    parser.add_argument("--json", type=Path, help="write the report for machines here")
    arguments = parser.parse_args()
    reports = []
    if "que" in arguments.stores:
        subprocess.run([sys.executable, HERE / "que.py"], check=True)
    for store in (store for store in arguments.stores if store != "que"):
        harness = find_harness(store)()
        harness.start()
        try:
            script = HERE / "ceilings" / f"{store}.py"
            report = measure(
                harness,
                script,
                Size(rounds=arguments.rounds, backlog=arguments.backlog),
                lambda line: print(line, file=sys.stderr),
            )
        finally:
            harness.stop()
        reports.append(report)
        print(table(report), end="\n\n", flush=True)
    if arguments.json:
        arguments.json.write_text(to_json(reports))
    return 1 if any(report.lost or report.doubled for report in reports) else 0


sys.exit(main())
