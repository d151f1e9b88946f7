"""The command `hesape-conformance torture`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hesape.driver import Fact
from hesape_conformance import installed
from hesape_conformance.harness import HarnessUnavailableError
from hesape_conformance.torture.report import EXITS, WORST_FIRST, Report

if TYPE_CHECKING:
    from hesape_conformance.harness import Harness
    from hesape_conformance.torture.flat import FlatReport

USAGE = 4


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--url", default="", help="The store's address; by default the harness's own.")
@click.option("--seconds", type=click.FloatRange(min=1), default=180.0, show_default=True, help="Of chaos.")
@click.option("--seed", type=int, help="Of what goes wrong and of what is pushed; by default a random one, printed.")
@click.option("--jobs", type=click.IntRange(min=0), help="Jobs of the test of flatness; 100,000 for all, 0 for a NAME.")
@click.option("--idle", type=click.FloatRange(min=0), default=60.0, show_default=True, help="Seconds of idling in it.")
@click.option("--json", "as_json", is_flag=True, help="Print the reports for machines.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="Write them here, too.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), help="Keep histories and logs here.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is struck.")
def torture(
    names: tuple[str, ...],
    url: str,
    seconds: float,
    seed: int | None,
    jobs: int | None,
    idle: float,
    *,
    as_json: bool,
    report: Path | None,
    keep: Path | None,
    verbose: bool,
) -> None:
    """Torture workers on the installed driver NAME, by default on each that several processes can share.

    Real workers and producers are killed, frozen and cut off for a while, then the history is checked: nothing may be
    lost, altered, run early or twice at once, brought back, or settled by a worker that lost its lease. With --jobs a
    worker then does so many jobs and idles: its memory, handles, threads and connections must stay as they are.

    Exit code 0 if all passed, 1 if something was found, 3 if too little was hit for a pass, 4 without a harness.
    """
    if url and len(names) != 1:
        click.echo("--url is the address of one store: name its driver", err=True)
        sys.exit(USAGE)
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    flat_jobs = (0 if names else 100_000) if jobs is None else jobs
    found: list[Report | FlatReport] = []
    for name in names or _all():
        with _started(name, url) as harness:
            found += _reports(harness, seconds, chosen, flat_jobs, idle, keep=keep, verbose=verbose, quiet=as_json)
    written = json.dumps([one.to_dict() for one in found], indent=2, sort_keys=True)
    if as_json:
        click.echo(written)
    if report is not None:
        report.write_text(written + "\n", encoding="utf-8")
    outcomes = {one.outcome for one in found}
    sys.exit(EXITS[next(outcome for outcome in WORST_FIRST if outcome in outcomes)])


def _all() -> list[str]:
    return [name for name in installed.names() if Fact.MULTI_PROCESS in installed.find_harness(name).spec().facts]


def _reports(
    harness: Harness,
    seconds: float,
    seed: int,
    jobs: int,
    idle: float,
    *,
    keep: Path | None,
    verbose: bool,
    quiet: bool,
) -> Iterator[Report | FlatReport]:
    from hesape_conformance.torture.flat import flat
    from hesape_conformance.torture.run import Torment, torture

    def tell(line: str) -> None:
        if verbose:
            click.echo(f"{harness.driver}: {line}", err=True)

    click.echo(f"{harness.driver}: {seconds:g} s with seed {seed}", err=True)
    made: Report | FlatReport = torture(
        harness, Torment(seconds=seconds, seed=seed, keep=keep and keep / harness.driver), tell
    )
    if not quiet:
        click.echo(made.text())
    yield made
    if jobs:
        click.echo(f"{harness.driver}: {jobs} jobs and {idle:g} s of idling", err=True)
        made = flat(harness, jobs, idle, tell)
        if not quiet:
            click.echo(made.text())
        yield made


@contextmanager
def _started(name: str, url: str) -> Iterator[Harness]:
    try:
        harness = _harness(name, url)
        try:
            harness.start()
            yield harness
        finally:
            harness.stop()
    except HarnessUnavailableError as error:
        click.echo(f"no harness: {error}", err=True)
        sys.exit(USAGE)


def _harness(name: str, url: str) -> Harness:
    harness = installed.find_harness(name)(url)
    if Fact.MULTI_PROCESS not in harness.spec().facts:
        raise HarnessUnavailableError(f"the driver {name!r} serves one process alone; workers are several")
    return harness
