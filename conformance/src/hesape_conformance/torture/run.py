"""One torture: a fleet over a fresh namespace, chaos for a while, then a time to drain, and the history's verdict."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from hesape.driver import Fact
from hesape.errors import HesapeError
from hesape_conformance import guard
from hesape_conformance.history import Recorder, check, read
from hesape_conformance.torture import chaos, plan
from hesape_conformance.torture.fleet import Fleet
from hesape_conformance.torture.names import QUEUES
from hesape_conformance.torture.plan import Blow
from hesape_conformance.torture.report import Report, least_kills, least_stale

if TYPE_CHECKING:
    from hesape.driver import Driver
    from hesape_conformance.harness import Harness

NAMESPACE: Final = "torture"
SHORT_LEASE_S: Final = 4.0
"""Of the workers that are frozen past it."""
LONG_LEASE_S: Final = 600.0
"""Of the others: what brings their jobs back is the look after the dead."""
WARM_WITHIN_S: Final = 30.0
DRAINED_WITHIN_S: Final = 60.0
GONE_WITHIN_S: Final = 15.0


@attrs.frozen(kw_only=True)
class Torment:
    """How long and how hard."""

    seconds: float = 180.0
    seed: int = 0
    producers: int = 2
    workers: int = 2
    """Under each of the two supervisors."""
    keep: Path | None = None
    """Where the history and the logs are copied to."""
    only: frozenset[Blow] = frozenset(Blow)
    """The blows that are dealt, of those that the store and its harness can suffer."""


def torture(harness: Harness, torment: Torment, tell: Callable[[str], None] = lambda _: None) -> Report:
    """Torture the driver of a started harness. Everything in it is bounded in time, whatever the driver does."""
    networked = Fact.NETWORKED in harness.spec().facts
    possible = chaos.possible(harness, networked=networked) & torment.only
    strikes = plan.schedule(torment.seed, torment.seconds * chaos.PATIENCE, possible)
    with _folder(torment.keep) as folder, opened(harness, NAMESPACE) as driver:
        recorder = Recorder(_made(folder), "chaos")
        rng = random.Random(torment.seed)
        fleet = Fleet(folder, harness.settings(NAMESPACE), recorder, rng, skewed=networked)
        struck = chaos.Chaos(harness, NAMESPACE, fleet, recorder, tell)
        began = time.monotonic()
        try:
            _man(fleet, torment)
            _warm_up(folder / "history", 2 * torment.workers)
            struck.run(strikes, torment.seconds, lambda: _enough(struck, folder / "history", torment))
            drained_s = _drain(fleet, driver, tell)
            fleet.stop(list(fleet.posts))
            _wait_for_orphans(fleet)
        finally:
            fleet.close()
            guard.kill_all_in(folder)
        left = {row["id"]: row["state"] for row in harness.raw(NAMESPACE).rows()}
        return Report(
            driver=harness.driver,
            server=" ".join(harness.server()),
            seconds=torment.seconds,
            seed=torment.seed,
            took_s=time.monotonic() - began,
            drained_s=drained_s,
            settles=dict(fleet.settles),
            blows=dict(struck.dealt),
            spared=[str(blow) for blow in plan.Blow if blow not in possible],
            problems=fleet.problems,
            verdict=check(read(folder / "history"), left),
        )


def _made(folder: Path) -> Path:
    history = folder / "history"
    history.mkdir()
    return history


def _man(fleet: Fleet, torment: Torment) -> None:
    fleet.supervisor("short", SHORT_LEASE_S, torment.workers)
    fleet.supervisor("long", LONG_LEASE_S, torment.workers)
    for number in range(torment.producers):
        fleet.producer(f"producer-{number}", torment.seed * 1_000 + number)


def _enough(struck: chaos.Chaos, history: Path, torment: Torment) -> bool:
    """Whether enough was hit for a pass; where only some blows were asked for, nothing more is."""
    if torment.only != frozenset(Blow):
        return True
    refused = sum(path.read_bytes().count(b'"outcome": "lost"') for path in history.glob("worker-*"))
    return struck.kills_in_a_job > least_kills(torment.seconds) and refused >= least_stale(torment.seconds)


def _warm_up(history: Path, workers: int) -> None:
    """Wait until the workers work: what strikes before that hits nobody."""
    deadline = time.monotonic() + WARM_WITHIN_S
    while time.monotonic() < deadline:
        if sum('"starting"' in path.read_text(encoding="utf-8") for path in history.glob("worker-*")) >= workers:
            return
        time.sleep(0.1)


def _drain(fleet: Fleet, driver: Driver, tell: Callable[[str], None]) -> float | None:
    """Let workers finish everything; how long that took, `None` when they didn't."""
    fleet.stop(fleet.producers)
    tell("no more pushes, no more strikes: draining")
    began = time.monotonic()
    while time.monotonic() < began + DRAINED_WITHIN_S:
        fleet.tend()
        try:
            if not any(driver.counts(queue).size for queue in QUEUES):
                return time.monotonic() - began
        except HesapeError:
            tell("the store doesn't answer")
        time.sleep(0.1)
    return None


def _wait_for_orphans(fleet: Fleet) -> None:
    """Workers whose supervisor was killed leave when they are done."""
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := guard.processes_in(fleet.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        fleet.signal(pid, signal.SIGKILL)
        fleet.problems.append(
            f"process {pid} was left behind by its supervisor, and hadn't left after {GONE_WITHIN_S} s"
        )


@contextmanager
def opened(harness: Harness, namespace: str) -> Iterator[Driver]:
    """The driver over a fresh namespace, its tables made; everything is removed in the end."""
    harness.drop(namespace)
    try:
        with closing(harness.open(namespace)) as driver:
            driver.migrate()
            yield driver
    finally:
        harness.drop(namespace)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hesape-torture-") as name:
        folder = Path(name).resolve()
        try:
            yield folder
        finally:
            if keep is not None:
                shutil.copytree(folder, keep, dirs_exist_ok=True)
