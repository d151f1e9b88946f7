"""The page of figures and its picture, made from the reports: nothing in them is typed by hand."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import beside
import results

from hesape_conformance.bench import goals
from hesape_conformance.bench.goals import BESIDE, Goal
from hesape_conformance.bench.report import Report

HERE = Path(__file__).parent
DOCS = HERE.parent.parent / "docs"
PAGE, PICTURE = "benchmarks.md", "benchmarks.svg"
BEGIN, END = "<!-- figures: made by `python conformance/bench page` -->", "<!-- end of figures -->"
SHOWN = ("push", "bulk", "drain")


def write(arguments: argparse.Namespace, _further: list[str]) -> int:
    """Put the figures into the page, and draw the picture."""
    page, picture = made(arguments.results, (DOCS / PAGE).read_text(encoding="utf-8"))
    (DOCS / PAGE).write_text(page, encoding="utf-8")
    (DOCS / PICTURE).write_text(picture, encoding="utf-8")
    return 0


def made(folder: Path, page: str) -> tuple[str, str]:
    """The page with the figures of the folder in it, and the picture."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    reports, wanted = results.reports(folder), goals.load(HERE / "goals.toml")
    judged = goals.judge(wanted, reports, results.peers(folder))
    parts = [
        *(part for report in reports for part in _store(report)),
        *_que(results.read(folder, "que")),
        *(part for found in results.peer_runs(folder).values() for part in _peers(found)),
        *(["## Goals", table([goals.HEAD, *goals.rows(judged)])] if judged else ()),
    ]
    text = "\n\n".join([BEGIN, *parts, END])
    return f"{before}{text}{after}", drawn(reports, wanted)


def table(lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table of the lines, the first of which is its head."""
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *body])


def _store(report: Report) -> Iterator[str]:
    yield f"## {report.driver}"
    yield "  \n".join(report.head())
    head = ("", "unit", "ours", "beside it", "ratio", "range of ours")
    yield table([head, *(figure.row() for figure in report.figures)])
    if report.problems:
        yield "\n".join(f"- not measured: {problem}" for problem in report.problems)


def _que(found: dict[str, Any] | None) -> Iterator[str]:
    if found:
        yield "## que"
        yield (
            f"Que's own table on PostgreSQL, {found['jobs']:,} jobs in slices, in turns: a client of four round trips a"
            f" job {found['plain_per_s']:,} jobs/s, `QueWorker` {found['worker_per_s']:,} jobs/s, {found['ratio']}"
            " times."
        )


def _peers(found: dict[str, Any]) -> Iterator[str]:
    size = found["size"]
    yield f"## Beside other libraries: {found['store']}"
    yield (
        f"{found['server']}; {size['rounds']} rounds of {size['jobs']:,} jobs, medians; one producer, one worker"
        f" process of {size['slots']} slots."
    )
    yield table(beside.rows(found))
    problems = [f"- {library['name']}: {it}" for library in found["libraries"] for it in library["problems"]]
    if problems:
        yield "\n".join(problems)


# The picture: of each store three bars, ours as a part of the ceiling, each with its goal.

ROW, GROUP, LEFT, WIDTH, FULL = 15, 12, 150, 560, 1.25
STYLE = """\
text { font: 11px sans-serif; fill: #333 } .store { font-weight: bold } .bar { fill: #3b7dd8 } .goal { stroke: #c0392b }
.one { stroke: #999; stroke-dasharray: 3 3 } rect.all { fill: #fff }"""


def drawn(reports: Sequence[Report], wanted: Sequence[Goal]) -> str:
    """An SVG of it."""
    scale = (WIDTH - LEFT - 60) / FULL
    parts, y = [], 34
    for report in reports:
        parts.append(f'<text class="store" x="8" y="{y + 11}">{report.driver}</text>')
        for figure in (figure for figure in report.figures if figure.key in SHOWN and figure.ratio is not None):
            ratio = figure.ratio or 0.0
            end = LEFT + min(ratio, FULL) * scale
            parts += [
                f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{figure.key}</text>',
                f'<rect class="bar" x="{LEFT}" y="{y + 2}" width="{end - LEFT:.1f}" height="{ROW - 4}"/>',
                f'<text x="{end + 5:.1f}" y="{y + 11}">{ratio:.0%}</text>',
            ]
            parts += [_mark("goal", LEFT + goal * scale, y, y + ROW) for goal in _goals(wanted, report, figure.key)]
            y += ROW
        y += GROUP
    one = _mark("one", LEFT + scale, 26, y - GROUP)
    title = '<text x="8" y="16">Jobs a second as a part of the plain script\'s (dashed); red: the goal</text>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" viewBox="0 0 {WIDTH} {y}" role="img">\n'
        f"<title>Speed of each driver beside a plain script</title>\n<style>{STYLE}</style>\n"
        f'<rect class="all" width="{WIDTH}" height="{y}"/>\n{title}\n{one}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _mark(kind: str, x: float, top: float, bottom: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>'


def _goals(wanted: Sequence[Goal], report: Report, key: str) -> list[float]:
    return [
        goal.at_least
        for goal in wanted
        if goal.figure == key
        and goal.of == BESIDE
        and goal.at_least is not None
        and (not goal.stores or report.driver in goal.stores)
    ]
