"""One run: rounds in which the ceiling and the driver take turns, then what needs a full store or many jobs.

Each step is measured on a store of its own. One that fails is noted, and the others go on.
"""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

import attrs

import hesape
from hesape.config import ConnectionSettings
from hesape.driver import Fact
from hesape_conformance import installed
from hesape_conformance.bench import ceiling as plainly
from hesape_conformance.bench import figures, trips
from hesape_conformance.bench.ceiling import Ceiling, Script
from hesape_conformance.bench.figures import Place
from hesape_conformance.bench.report import LINES, Figure, Report
from hesape_conformance.bench.stamps import Seen
from hesape_conformance.harness import Harness
from hesape_conformance.torture.run import opened

NAMESPACE: Final = "bench"
_DUE: Final = 10_000
"""Due jobs among which pops are timed."""
_COUNTED_AS: Final = {"scheduled": "delayed", "failed": "failed"}
"""Of a backlog, what the counts of a queue call it."""
_COUNTED: Final = 5_000
"""Jobs whose round trips are counted."""


@attrs.frozen(kw_only=True)
class Size:
    """How much is measured."""

    rounds: int = 3
    pushes: int = 3_000
    jobs: int = 20_000
    samples: int = 100
    backlog: int = 1_000_000
    """Scheduled, and then failed, jobs among which pops are timed once; 0: not at all."""
    long: int = 1_000_000
    """Jobs that one worker does for its memory; half as many pass a held snapshot. 0: not at all."""


def measure(
    harness: Harness,
    script: Script | None,
    size: Size,
    tell: Callable[[str], None] = lambda _: None,
    save: Callable[[Report], None] = lambda _: None,
) -> Report:
    """Measure the driver of a started harness; with `script`, beside the plain script of its store.

    `save` is given the report after each step, as far as it got.
    """
    run = _Run(harness, script, size)
    began = time.monotonic()
    for name, step in run.steps():
        tell(f"{time.monotonic() - began:4.0f} s  {harness.driver}: {name}")
        try:
            step()
        except Exception as error:  # noqa: BLE001 - whatever it is, the others' figures are wanted
            if isinstance(error, figures.LostError):
                run.report.lost += error.jobs
            run.report.problems.append(f"{name}: {type(error).__name__}: {error}")
            tell(run.report.problems[-1])
        run.report.took_s = round(time.monotonic() - began, 1)
        save(run.report)
    return run.report


class _Run:
    def __init__(self, harness: Harness, script: Script | None, size: Size) -> None:
        self.harness = harness
        self.script = script
        self.size = size
        self._facts = harness.spec().facts
        self._one: list[float] = []
        """What this round's drain by one process reached, if it got that far."""
        self.report = Report(
            driver=harness.driver,
            server=" ".join(harness.server()),
            durability=self._durability(),
            machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            versions=_versions(harness.driver),
            size=attrs.asdict(size),
            ceiling="" if script is None else script.source(),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Every step with its name."""
        several = Fact.MULTI_PROCESS in self._facts
        for number in range(1, self.size.rounds + 1):
            of = f"round {number} of {self.size.rounds}"
            yield f"{of}, push", partial(self._push, number)
            yield f"{of}, bulk", partial(self._bulk, number)
            if several:
                yield f"{of}, drain", partial(self._drain, number)
                yield f"{of}, two processes", self._two
                yield f"{of}, latency", self._latency
                yield f"{of}, recovery", self._recovery
        if several and (Fact.NETWORKED in self._facts or (self.script and self.script.writes)):
            yield "round trips", self._trips
        if self.size.backlog:
            for kind in ("scheduled", "failed"):
                yield f"pops among {self.size.backlog:,} {kind} jobs", partial(self._pops, kind)
        if self.size.long and several:
            yield f"drain of {self.size.long:,} jobs", self._long

    # The steps.

    def _push(self, number: int) -> None:
        def ours() -> float:
            with self._place() as place:
                return figures.push(place.queue, self.size.pushes)

        self._in_turn(number, "push", lambda plain: plainly.push(plain, self.size.pushes), ours)

    def _bulk(self, number: int) -> None:
        def ours() -> float:
            with self._place() as place:
                return figures.bulk(place.queue, self.size.jobs)

        self._in_turn(number, "bulk", lambda plain: plainly.bulk(plain, self.size.jobs), ours)

    def _drain(self, number: int) -> None:
        def ours() -> float:
            self._one = [self._drained(self.size.jobs)]
            return self._one[0]

        self._one = []
        self._in_turn(number, "drain", lambda plain: plainly.drain(plain, self.size.jobs), ours)

    def _two(self) -> None:
        self._note("drain_two", self._drained(self.size.jobs, processes=2), *self._one)
        busy = max(self.size.jobs // 10, 1)
        one = self._drained(busy, name=figures.BUSY)
        self._note("busy_two", self._drained(busy, name=figures.BUSY, processes=2), one)

    def _drained(self, jobs: int, *, name: str = figures.NOOP, processes: int = 1) -> float:
        with self._place() as place:
            return self._count(figures.drain(place, jobs, name=name, processes=processes)).per_s

    def _latency(self) -> None:
        with self._place() as place:
            found = figures.latency(place, self.size.samples)
        self._count(found.seen)
        self._note("p50", found.p50_ms)
        self._note("p99", found.p99_ms)
        self._note("idle", found.idle_percent)

    def _recovery(self) -> None:
        with self._place() as place:
            found = figures.recovery(place)
        self._count(found.seen)
        self._note("recovery", found.seconds)

    def _pops(self, kind: str) -> None:
        due = min(_DUE, self.size.backlog)
        with self._place() as place:
            without = figures.pops(place.queue, due)
            if self.script is not None and self.script.copies is not None:
                figures.pile_up(place.queue, **{kind: 1})
                self.script.copies(place.settings, self.size.backlog - 1)
            else:
                figures.pile_up(place.queue, **{kind: self.size.backlog})
            figures.expect(place.queue, **{_COUNTED_AS[kind]: self.size.backlog})
            among = figures.pops(place.queue, due)
        self._note(f"pop_{kind}", among.pop_ms, without.pop_ms)
        self._note(f"empty_{kind}", among.empty_ms, without.empty_ms)

    def _long(self) -> None:
        with self._place() as place:
            found = figures.long_drain(place, self.size.long)
        self._count(found.seen)
        self._note("memory", found.after_mib, found.before_mib)
        if self.script is not None and self.script.snapshot is not None:
            with self._place() as place, self.script.snapshot(place.settings):
                held = figures.long_drain(place, max(self.size.long // 2, 1))
            self._note("snapshot", self._count(held.seen).per_s, found.seen.per_s)

    def _trips(self) -> None:
        pushes, jobs = min(self.size.pushes, 500), min(self.size.jobs, _COUNTED)
        with trips.counting(self.harness, self.script, NAMESPACE) as (settings, counter):
            with self._place(settings) as place:
                ours = trips.ours(self.harness, place, counter, pushes, jobs, self._count)
            plain = {}
            if self.script is not None:
                with self.script.open(settings) as opened:
                    plain = trips.plain(opened, counter, pushes, jobs)
        for key, value in ours.items():
            self._note(f"trips_{key}", value, *([plain[key]] if plain else []), unit=counter.unit)

    # What the steps share.

    def _in_turn(self, number: int, key: str, plain: Callable[[Ceiling], float], ours: Callable[[], float]) -> None:
        """Measure the ceiling and ours, in the other order every other round."""

        def beside() -> float:
            with self.script.open(self.harness.settings(NAMESPACE)) as opened:  # type: ignore[union-attr]
                return plain(opened)

        if self.script is None:
            self._note(key, ours())
        elif number % 2:
            ceiling = beside()
            self._note(key, ours(), ceiling)
        else:
            self._note(key, ours(), beside())

    def _note(self, key: str, ours: float, *beside: float, unit: str = "") -> None:
        figure = next((figure for figure in self.report.figures if figure.key == key), None)
        if figure is None:
            figure = Figure(key=key, unit=unit or LINES[key].unit)
            self.report.figures.append(figure)
            self.report.figures.sort(key=lambda figure: list(LINES).index(figure.key))
        figure.ours.append(ours)
        figure.beside += beside

    def _count(self, seen: Seen) -> Seen:
        self.report.ran += seen.ran
        self.report.lost += seen.lost
        self.report.doubled += seen.doubled
        return seen

    @contextmanager
    def _place(self, settings: ConnectionSettings | None = None) -> Iterator[Place]:
        """An empty store; a worker reaches it by `settings`, by default the harness's own."""
        with opened(self.harness, NAMESPACE) as driver, tempfile.TemporaryDirectory(prefix="hesape-bench-") as folder:
            yield Place(hesape.Queue(driver), settings or self.harness.settings(NAMESPACE), Path(folder))

    def _durability(self) -> str:
        if self.script is None or self.script.durability is None:
            return "durable as the driver's harness has it"
        with self._place() as place:
            try:
                return self.script.durability(place.settings)
            except Exception as error:  # noqa: BLE001 - a server that doesn't tell is measured all the same
                return f"durability unknown: {type(error).__name__}: {error}"


def _versions(driver: str) -> dict[str, str]:
    """The core's, the driver's, and of a driver with a distribution of its own what that requires."""
    owner, _ = installed.owner_of(driver)
    required = requires(owner) or () if owner != "hesape-core" else ()
    found = {}
    for line in ("hesape-core", "hesape-conformance", owner, *required):
        name = re.split(r"[^A-Za-z0-9._-]", line)[0]
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
