"""The command `hesape-conformance torture`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    from hesape_conformance.torture.idle import Idler

USAGE = 4


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--url", default="", help="The store's address; by default the harness's own.")
@click.option("--seconds", type=click.FloatRange(min=1), default=180.0, show_default=True, help="Of chaos.")
@click.option("--seed", type=int, help="Of what goes wrong and of what is pushed; by default a random one, printed.")
@click.option("--jobs", type=click.IntRange(min=0), help="A worker does so many; 1,000,000 for all, 0 for a NAME.")
@click.option(
    "--idle", type=click.FloatRange(min=0), help="Another idles so many seconds; 1,800 for all, 0 for a NAME."
)
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
    idle: float | None,
    *,
    as_json: bool,
    report: Path | None,
    keep: Path | None,
    verbose: bool,
) -> None:
    """Torture workers on the installed driver NAME, by default on each that several processes can share.

    Real workers and producers are killed, frozen and cut off for a while, then the history is checked: nothing may be
    lost, altered, run early or twice at once, brought back, or settled by a worker that lost its lease. A worker that
    does --jobs no-op jobs after that, and one that idles for --idle seconds beside it all, must hold no more memory,
    handles, threads and connections in the end than at first.

    Exit code 0 if all passed, 1 if something was found, 3 if too little was hit for a pass, 4 without a harness.
    """
    if url and len(names) != 1:
        click.echo("--url is the address of one store: name its driver", err=True)
        sys.exit(USAGE)
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    chosen_names = names or tuple(_all())
    flat_jobs = (0 if names else 1_000_000) if jobs is None else jobs
    idle_s = (0.0 if names else 1_800.0) if idle is None else idle
    found: list[Report | FlatReport] = []

    def add(made: Report | FlatReport) -> None:
        found.append(made)
        if not as_json:
            click.echo(made.text())

    with ExitStack() as stack:
        idlers = [stack.enter_context(_idling(name, url, idle_s)) for name in chosen_names if idle_s]
        for name in chosen_names:
            with _started(name, url) as harness:
                for made in _reports(harness, seconds, chosen, flat_jobs, keep=keep, verbose=verbose):
                    add(made)
                    for idler in idlers:
                        idler.look_if_due()
        for idler in idlers:
            add(idler.finish())
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
    harness: Harness, seconds: float, seed: int, jobs: int, *, keep: Path | None, verbose: bool
) -> Iterator[Report | FlatReport]:
    from hesape_conformance.torture.flat import flat
    from hesape_conformance.torture.run import Torment, torture

    def tell(line: str) -> None:
        if verbose:
            click.echo(f"{harness.driver}: {line}", err=True)

    click.echo(f"{harness.driver}: {seconds:g} s with seed {seed}", err=True)
    yield torture(harness, Torment(seconds=seconds, seed=seed, keep=keep and keep / harness.driver), tell)
    if jobs:
        click.echo(f"{harness.driver}: {jobs} jobs", err=True)
        yield flat(harness, jobs, tell)


@contextmanager
def _idling(name: str, url: str, idle_s: float) -> Iterator[Idler]:
    from hesape_conformance.torture.idle import Idler

    with _started(name, url) as harness, Idler(harness, idle_s) as idler:
        click.echo(f"{harness.driver}: a worker idles for {idle_s:g} s from now on", err=True)
        yield idler


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
