"""One run: rounds in which the ceiling and the driver take turns, and the medians of both."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

import hesape
from hesape_conformance.bench import ceiling as ceilings
from hesape_conformance.bench import figures
from hesape_conformance.harness import Harness


@attrs.frozen(kw_only=True)
class Size:
    """How much is measured."""

    rounds: int = 3
    pushes: int = 3_000
    jobs: int = 20_000
    samples: int = 100
    backlog: int = 1_000_000
    """Scheduled jobs among which pops are timed once, and a twentieth as many failed ones; 0: not at all."""


@attrs.frozen(kw_only=True)
class Figure:
    """One line of the table: ours, the ceiling of the same run, and the spread of ours."""

    name: str
    unit: str
    ours: float
    ceiling: float | None = None
    lowest: float
    highest: float

    @property
    def ratio(self) -> float | None:
        """Ours as a part of the ceiling."""
        return None if not self.ceiling else self.ours / self.ceiling


@attrs.frozen(kw_only=True)
class Report:
    """What a run found."""

    driver: str
    server: str
    settings: str
    machine: str
    versions: dict[str, str]
    size: Size
    figures: list[Figure]
    ran: int
    lost: int
    doubled: int
    ceiling: str = ""
    """The source of the plain script."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = attrs.asdict(self)
        for line, figure in zip(found["figures"], self.figures, strict=True):
            line["ratio"] = figure.ratio
        return found


def measure(
    harness: Harness, script: Path | None, size: Size, progress: Callable[[str], None] = lambda _: None
) -> Report:
    """Measure the driver of a started harness; with `script`, beside the plain script of its store."""
    found: dict[str, list[float]] = {}
    plain: dict[str, list[float]] = {}
    ran = lost = doubled = 0
    for round_ in range(size.rounds):
        progress(f"{harness.driver}: round {round_ + 1} of {size.rounds}")
        with _namespace(harness, f"bench_{round_}") as (queue, settings, folder):
            if script is not None:
                _note(plain, _ceiling(script, settings, size))
            _note(found, {"push": figures.push(queue, size.pushes)})
            queue.operator().clear("default")
            _note(found, {"bulk": figures.bulk(queue, size.jobs)})
            queue.operator().clear("default")
            drained = figures.drain(queue, settings, folder, size.jobs)
            _note(found, {"drain": drained.per_s})
            ran, lost, doubled = ran + drained.seen.ran, lost + drained.seen.lost, doubled + drained.seen.doubled
            latency = figures.latency(queue, settings, folder, size.samples)
            _note(found, {"p50": latency.p50_ms, "p99": latency.p99_ms, "idle": latency.idle_cpu * 100})
    if size.backlog:
        progress(f"{harness.driver}: pops among {size.backlog:,} scheduled and {size.backlog // 20:,} failed jobs")
        with _namespace(harness, "bench_pile") as (queue, _, _):
            alone = figures.pops(queue)
            figures.pile_up(queue, size.backlog, size.backlog // 20)
            among = figures.pops(queue)
        _note(found, {"pop": among.pop_ms, "empty": among.empty_ms})
        _note(plain, {"pop": alone.pop_ms, "empty": alone.empty_ms})
    product = " ".join(harness.server())
    return Report(
        driver=harness.driver,
        server=product,
        settings=_durability(harness),
        machine=f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        versions={name: version(name) for name in ("hesape-core", "hesape-conformance")},
        size=size,
        figures=[_figure(name, found[name], plain.get(name)) for name in found],
        ran=ran,
        lost=lost,
        doubled=doubled,
        ceiling="" if script is None else ceilings.source(script),
    )


_LINES = {
    "push": ("push one by one", "jobs/s"),
    "bulk": ("bulk of 1,000", "jobs/s"),
    "drain": ("drain by hesape work, 4 slots", "jobs/s"),
    "p50": ("pick-up latency p50", "ms"),
    "p99": ("pick-up latency p99", "ms"),
    "pop": ("pop 1 among a backlog; without", "ms"),
    "empty": ("empty pop with a backlog; without", "ms"),
    "idle": ("idle worker and supervisor", "% of a core"),
}


def _figure(name: str, ours: list[float], plain: list[float] | None) -> Figure:
    title, unit = _LINES[name]
    ceiling = figures.median(plain) if plain else None
    return Figure(
        name=title, unit=unit, ours=figures.median(ours), ceiling=ceiling, lowest=min(ours), highest=max(ours)
    )


def _note(into: dict[str, list[float]], values: dict[str, float]) -> None:
    for name, value in values.items():
        into.setdefault(name, []).append(value)


def _ceiling(script: Path, settings: Any, size: Size) -> dict[str, float]:
    plain = ceilings.load(script, settings)
    try:
        return {
            "push": _rate(plain, plain.push, size.pushes),
            "bulk": _rate(plain, plain.bulk, size.jobs),
            "drain": _drain_rate(plain, size.jobs),
        }
    finally:
        plain.close()


def _rate(plain: ceilings.Ceiling, call: Callable[[Any], None], n: int) -> float:
    plain.prepare()
    wanted = figures.payloads(n)
    return n / figures.timed(lambda: call(wanted))


def _drain_rate(plain: ceilings.Ceiling, n: int) -> float:
    plain.prepare()
    plain.bulk(figures.payloads(n))
    done = 0

    def drain() -> None:
        nonlocal done
        done = plain.drain()

    elapsed = figures.timed(drain)
    assert done == n, f"the plain script drained {done} of {n} jobs"
    return n / elapsed


@contextmanager
def _namespace(harness: Harness, name: str) -> Iterator[tuple[hesape.Queue, Any, Path]]:
    driver = harness.open(name)
    driver.migrate()
    with tempfile.TemporaryDirectory(prefix="hesape-bench-") as folder:
        try:
            yield hesape.Queue(driver), harness.settings(name), Path(folder)
        finally:
            driver.close()
            harness.drop(name)


def _durability(harness: Harness) -> str:
    describe = getattr(harness, "durability", None)
    return str(describe()) if describe else "the driver's defaults"


def table(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.driver} on {report.server}; {report.settings}; {report.machine}",
        _counted(report),
        "",
        f"{'figure':<36}{'ours':>12}{'ceiling':>12}{'ratio':>8}   {'unit':<12} range",
    ]
    for figure in report.figures:
        ratio = "" if figure.ratio is None else f"{figure.ratio:.0%}"
        digits = 0 if figure.unit == "jobs/s" else 2
        ceiling = "" if figure.ceiling is None else f"{figure.ceiling:,.{digits}f}"
        spread = f"{figure.lowest:,.{digits}f} to {figure.highest:,.{digits}f}"
        lines.append(
            f"{figure.name:<36}{figure.ours:>12,.{digits}f}{ceiling:>12}{ratio:>8}   {figure.unit:<12} {spread}"
        )
    return "\n".join(lines)


def _counted(report: Report) -> str:
    drained = f"{report.ran} jobs drained, {report.lost} lost, {report.doubled} doubled"
    return f"{report.size.rounds} rounds, medians; {drained}"


def to_json(reports: list[Report]) -> str:
    """All reports for machines."""
    return json.dumps([report.to_dict() for report in reports], indent=2, sort_keys=True)
