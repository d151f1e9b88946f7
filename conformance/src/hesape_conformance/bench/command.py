"""The command `hesape-conformance bench`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hesape_conformance import installed
from hesape_conformance.harness import HarnessUnavailableError

if TYPE_CHECKING:
    from hesape_conformance.bench.report import Report

USAGE = 4
_COUNT = click.IntRange(min=0)
_SOME = click.IntRange(min=1)


@click.command()
@click.argument("name")
@click.option("--url", default="", help="The store's address; by default the harness's own.")
@click.option(
    "--ceiling",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A plain script for the same store, to measure beside the driver.",
)
@click.option("--rounds", type=_SOME, default=3, show_default=True, help="How often each is measured, in turn.")
@click.option("--pushes", type=_SOME, default=3_000, show_default=True, help="Jobs pushed one by one.")
@click.option("--jobs", type=_SOME, default=20_000, show_default=True, help="Jobs in bulk, and of each drain.")
@click.option("--samples", type=_SOME, default=100, show_default=True, help="Jobs pushed to an idle worker.")
@click.option("--backlog", type=_COUNT, default=1_000_000, show_default=True, help="Jobs not due, among pops; 0: none.")
@click.option("--long", type=_COUNT, default=1_000_000, show_default=True, help="Jobs of the long drain; 0: none.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
def bench(name: str, url: str, ceiling: Path | None, file: Path | None, **size: int) -> None:
    """Measure the installed driver NAME: pushes, drains, latency, a backlog, memory, round trips.

    With --ceiling a plain script that does the same work on the same server is measured beside it, in turn; its source
    is printed with the report. A report is written after each step, so that an interrupted run keeps what it found.

    Exit code 0 if all was measured, 1 if a job was lost or ran twice or a step failed, 4 without a harness.
    """
    from hesape_conformance.bench.ceiling import Script
    from hesape_conformance.bench.run import Size, measure

    def save(report: Report) -> None:
        if file is not None:
            made = file.with_name(f".{file.name}")
            made.write_text(json.dumps(report.to_dict(), indent=1) + "\n", encoding="utf-8")
            made.replace(file)

    try:
        harness = installed.find_harness(name)(url)
        try:
            harness.start()
            script = None if ceiling is None else Script(ceiling)
            report = measure(harness, script, Size(**size), lambda line: click.echo(line, err=True), save)
        finally:
            harness.stop()
    except HarnessUnavailableError as error:
        click.echo(f"no harness: {error}", err=True)
        sys.exit(USAGE)
    click.echo(report.text())
    if report.ceiling:
        click.echo(f"\nThe ceiling is:\n\n{report.ceiling}")
    sys.exit(0 if report.sound else 1)
