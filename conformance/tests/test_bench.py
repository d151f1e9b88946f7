"""The instrument that measures drivers: tiny runs, what it says of goals, and that a lost job ends it with 1."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hesape
from hesape.driver import Driver
from hesape.drivers.memory.testing import MemoryHarness
from hesape.drivers.sqlite.testing import SqliteHarness
from hesape_conformance.bench import figures, goals, run, trips, working
from hesape_conformance.bench.ceiling import Script
from hesape_conformance.bench.command import bench
from hesape_conformance.bench.goals import Goal, Verdict
from hesape_conformance.bench.report import LINES, Figure, Report
from hesape_conformance.bench.run import Size, measure
from hesape_conformance.bench.stamps import Seen
from hesape_conformance.torture.run import opened

BENCH = Path(__file__).parents[1] / "bench"
TINY = ["--rounds", "1", "--pushes", "20", "--jobs", "60", "--samples", "3", "--backlog", "50", "--long", "100"]
SMALL = {"rounds": 1, "pushes": 20, "jobs": 60, "samples": 3, "backlog": 50, "long": 100}


def report(*found: Figure, **fields: Any) -> Report:
    about: dict[str, Any] = {"driver": "sqlite", "server": "SQLite 3", "durability": "FULL", "machine": "2 cores"}
    return Report(**{**about, "versions": {}, "size": SMALL, **fields}, figures=list(found))


def figure(key: str, ours: float, beside: float | None = None) -> Figure:
    return Figure(key=key, unit="jobs/s", ours=[ours], beside=[] if beside is None else [beside])


def verdicts(goal: Goal, one: Report, peers: goals.Peers | None = None) -> Verdict:
    return goals.judge([goal], [one], peers or {})[0].verdict


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a run have these of its steps alone, or others."""

    def choose(*names: str, **others: Callable[[], None]) -> None:
        def steps(self: Any) -> list[tuple[str, Callable[[], None]]]:
            return [*((name, partial(getattr(self, f"_{name}"), 1)) for name in names), *others.items()]

        monkeypatch.setattr(run._Run, "steps", steps)

    return choose


def test_every_figure_of_a_store_is_measured_beside_its_plain_script(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = CliRunner().invoke(
        bench, ["sqlite", *TINY, "--ceiling", str(BENCH / "ceilings/sqlite.py"), "--json", str(file)]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(file.read_text())
    assert {line["key"] for line in found["figures"]} == set(LINES) - {"snapshot"}
    by_key = {line["key"]: line for line in found["figures"]}
    for key in ("push", "bulk", "drain"):
        assert by_key[key]["ratio"] == pytest.approx(by_key[key]["median"] / by_key[key]["median_beside"])
    assert by_key["trips_push"]["median"] == pytest.approx(1, abs=0.1)
    assert by_key["trips_push"]["unit"] == "write transactions"
    assert (found["lost"], found["doubled"], found["problems"]) == (0, 0, [])
    assert found["ran"] == 60 + 60 + 6 + 6 + 4 + 1 + 60 + 100
    assert "synchronous FULL" in done.output
    assert (BENCH / "ceilings/sqlite.py").read_text() in done.output, "the ceiling's source is printed with the report"
    assert Report.from_dict(found).to_dict() == found


def test_a_driver_without_a_ceiling_and_for_one_process_alone_is_measured_as_far_as_it_goes() -> None:
    done = CliRunner().invoke(bench, ["memory", *TINY])
    assert done.exit_code == 0, done.output
    assert "(ceiling)" not in done.output
    assert LINES["pop_failed"].name in done.output
    assert LINES["drain"].name not in done.output, "a worker is another process"


def test_a_job_that_never_runs_is_counted_and_ends_the_run_with_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, only: Callable[..., None]
) -> None:
    def loses_one(queue: hesape.Queue, n: int, name: str = figures.NOOP) -> None:
        figures.store(queue, figures.payloads(n), name)
        queue.pop()[0].delete()

    monkeypatch.setattr(figures, "bulk", loses_one)
    only("drain")
    file = tmp_path / "report.json"
    done = CliRunner().invoke(bench, ["sqlite", *TINY, "--json", str(file)])
    assert done.exit_code == 1
    assert "59 jobs ran, 1 lost, 0 doubled" in done.output
    [lost] = goals.judge([], [Report.from_dict(json.loads(file.read_text()))], {})
    assert (lost.measured, lost.verdict) == (1, Verdict.NOT_REACHED)


def test_a_job_that_was_never_stored_is_missed(only: Callable[..., None]) -> None:
    class Losing(MemoryHarness):
        def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
            driver = super().open(namespace, endpoint=endpoint)
            store = driver._store
            driver._store = lambda rows, tx: store(rows[:-1], tx)  # type: ignore[method-assign]
            return driver

    only("bulk")
    found = measure(Losing(), None, Size(**SMALL))
    assert found.problems == ["bulk: LostError: 60 jobs were expected in the store (size), 59 are there"]
    assert found.lost == 1
    assert goals.judge([], [found], {})[0].verdict == Verdict.NOT_REACHED


def test_what_fails_is_noted_and_the_other_steps_go_on(only: Callable[..., None]) -> None:
    def breaks() -> None:
        message = "out of order"
        raise OSError(message)

    only("push", later=breaks, last=lambda: None)
    saved: list[tuple[int, int]] = []
    found = measure(
        MemoryHarness(), None, Size(**SMALL), save=lambda it: saved.append((len(it.figures), len(it.problems)))
    )
    assert found.problems == ["later: OSError: out of order"]
    assert saved == [(1, 0), (1, 1), (1, 1)], "a report after each step"
    assert "! later: OSError: out of order" in found.text()


@pytest.mark.parametrize("kind", ["scheduled", "failed"])
def test_a_backlog_that_falls_short_is_no_backlog(kind: str) -> None:
    class Script:
        copies, durability = staticmethod(lambda _settings, _n: None), None

        def source(self) -> str:
            return ""

    measuring = run._Run(MemoryHarness(), Script(), Size(**SMALL))  # type: ignore[arg-type]
    with pytest.raises(figures.LostError, match=r"50 jobs were expected in the store \(\w+\), 1 are there"):
        measuring._pops(kind)
    assert measuring.report.figures == []


def test_two_processes_are_measured_when_the_drain_by_one_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> Seen:
        message = "out of order"
        raise OSError(message)

    measuring = run._Run(MemoryHarness(), None, Size(**SMALL))
    monkeypatch.setattr(figures, "drain", breaks)
    with pytest.raises(OSError, match="out of order"):
        measuring._drain(1)
    monkeypatch.setattr(figures, "drain", lambda _place, n, **_how: Seen(n, 0, 0, 0, 1_000_000_000))
    measuring._two()
    assert [(it.key, it.ours, it.beside) for it in measuring.report.figures] == [
        ("drain_two", [59.0], []),
        ("busy_two", [5.0], [5.0]),
    ]
    assert json.dumps(measuring.report.to_dict())
    assert LINES["drain_two"].name in measuring.report.text()


def test_a_worker_that_ends_in_the_long_drain_has_lost_what_didnt_run(
    monkeypatch: pytest.MonkeyPatch, only: Callable[..., None]
) -> None:
    monkeypatch.setattr(working, "said", lambda _folder: "out of order")
    monkeypatch.setattr(working, "worker", lambda *_: subprocess.Popen([sys.executable, "-c", "exit(3)"]))
    monkeypatch.setattr(run._Run, "_long_drain", lambda self, _number: self._long(), raising=False)
    only("long_drain")
    found = measure(MemoryHarness(), None, Size(**SMALL))
    assert found.problems == ["long_drain: LostError: the worker ended with code 3: out of order"]
    assert found.lost == 100
    assert goals.judge([], [found], {})[0].verdict == Verdict.NOT_REACHED


def test_round_trips_are_counted_by_the_job() -> None:
    counted = [7]

    def call() -> None:
        counted[0] += 30

    assert trips.Counter("round trips", lambda: counted[0]).of(60, call) == 0.5


@pytest.mark.parametrize(
    ("ours", "verdict"), [(69.9, Verdict.NOT_REACHED), (70.1, Verdict.REACHED), (140.0, Verdict.REACHED)]
)
def test_a_part_of_the_ceiling_is_a_goal(ours: float, verdict: Verdict) -> None:
    goal = Goal(figure="push", of="beside", at_least=0.7)
    assert verdicts(goal, report(figure("push", ours, 100.0))) == verdict


def test_a_latency_is_a_goal_by_itself() -> None:
    goal = Goal(figure="p99", at_most=15)
    assert verdicts(goal, report(figure("p99", 15.5))) == Verdict.NOT_REACHED
    assert verdicts(goal, report(figure("p99", 14.5))) == Verdict.REACHED


def test_a_run_that_is_too_small_decides_nothing() -> None:
    goal = Goal(figure="pop_failed", of="beside", at_most=2, needs={"backlog": 1_000_000})
    [judged, _] = goals.judge([goal], [report(figure("pop_failed", 9.0, 1.0))], {})
    assert (judged.verdict, judged.why) == (Verdict.NOT_MEASURED, "backlog 50 of 1,000,000")
    big = report(figure("pop_failed", 9.0, 1.0), size={**SMALL, "backlog": 1_000_000})
    assert verdicts(goal, big) == Verdict.NOT_REACHED


@pytest.mark.parametrize(
    ("fields", "peers", "verdict", "why"),
    [
        ({"ran": 5}, {}, Verdict.REACHED, ""),
        ({"ran": 5}, {"hesape": {"lost": 0, "doubled": 0}, "other": {"lost": 3, "doubled": 3}}, Verdict.REACHED, ""),
        ({}, {}, Verdict.NOT_MEASURED, "no job ran"),
        ({"ran": 5, "problems": ["drain: OSError"]}, {}, Verdict.NOT_MEASURED, "steps that failed: 1"),
        ({"ran": 5, "lost": 1}, {}, Verdict.NOT_REACHED, ""),
        ({"ran": 5, "doubled": 1, "problems": ["drain: OSError"]}, {}, Verdict.NOT_REACHED, "steps that failed: 1"),
        ({"ran": 5}, {"hesape": {"lost": 0, "doubled": 1}}, Verdict.NOT_REACHED, ""),
    ],
)
def test_nothing_is_lost_only_where_all_was_measured(
    fields: dict[str, Any], peers: dict[str, dict[str, float]], verdict: Verdict, why: str
) -> None:
    [lost] = goals.judge([], [report(**fields)], {"sqlite": peers})
    assert (lost.verdict, lost.why) == (verdict, why)


def test_other_libraries_are_a_goal_one_and_all() -> None:
    peers = {"sqlite": {"hesape": {"drain": 300.0}, "slow": {"drain": 90.0}, "fast": {"drain": 160.0}, "odd": {}}}
    slow = Goal(figure="drain", of="slow", at_least=3)
    best = Goal(figure="drain", of="best peer", at_least=2)
    assert verdicts(slow, report(), peers) == Verdict.REACHED
    assert verdicts(best, report(), peers) == Verdict.NOT_REACHED
    assert verdicts(best, report(), {}) == Verdict.NOT_MEASURED


def test_a_goal_has_one_limit_and_a_figure_that_exists() -> None:
    with pytest.raises(ValueError, match="give one"):
        Goal(figure="push")
    with pytest.raises(ValueError, match="must be in"):
        Goal(figure="pull", at_least=1)
    with pytest.raises(ValueError, match="at_least alone"):
        Goal(figure="p50", of="best peer", at_most=1)
    with pytest.raises(ValueError, match="at_least alone"):
        Goal(figure="drain", of="pgqueuer", at_least=1, needs={"jobs": 20_000})


def told(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH), "--results", str(folder), *command], capture_output=True, text=True, check=False
    )


def test_the_table_says_not_reached(tmp_path: Path) -> None:
    made = report(figure("push", 60.0, 100.0), figure("bulk", 60.1, 100.0))
    (tmp_path / "sqlite.json").write_text(json.dumps(made.to_dict()))
    done = told(tmp_path, "goals")
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert any("push one by one" in line and line.endswith(" not reached") for line in lines)
    assert any("bulk" in line and line.endswith(" reached") and "not reached" not in line for line in lines)
    assert "1 not reached" in done.stdout


def test_the_committed_page_and_picture_are_made_of_the_committed_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import page

    committed = (page.DOCS / page.PAGE).read_text()
    assert page.made(BENCH / "results", committed) == (committed, (page.DOCS / page.PICTURE).read_text())


def test_the_page_shows_figures_and_what_they_reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import page

    made = report(figure("push", 60.0, 100.0), problems=["drain: it broke"])
    (tmp_path / "sqlite.json").write_text(json.dumps(made.to_dict()))
    (tmp_path / "redis.json").write_text("")
    text, picture = page.made(tmp_path, f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    assert "| push one by one | jobs/s | 60 | 100 (ceiling) | 0.60 |  |" in text
    assert "| sqlite | push one by one | at least 0.7 times ceiling | 0.60 | not reached |" in text
    assert "- not measured: drain: it broke" in text
    assert (text.startswith("before\n"), text.endswith("after\n"), "old" in text) == (True, True, False)
    assert ">60%</text>" in picture
    assert 'class="goal"' in picture


def test_libraries_are_driven_in_turns_and_what_is_lost_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import argparse

    import beside

    monkeypatch.setattr(beside, "PEERS", {"sqlite": ("hesape", "nobody")})
    parser = argparse.ArgumentParser()
    beside.options(parser)
    arguments = parser.parse_args(["--rounds", "1", "--jobs", "30", "--samples", "2", "--python", sys.executable])
    arguments.results, arguments.stores = tmp_path, ["sqlite"]
    assert beside.run(arguments, []) == 1, "one couldn't be measured"
    found = json.loads((tmp_path / "peers-sqlite.json").read_text())
    ours, nobody = found["libraries"]
    assert ours["problems"] == []
    assert (ours["lost"], ours["doubled"]) == (0, 0)
    assert all(len(ours["figures"][key]) == 1 for key in beside.FIGURES)
    assert "No module named 'with_nobody'" in nobody["problems"][0]
    assert "after the work" in capsys.readouterr().out

    ran_twice = [beside._Library(name, arguments) for name in ("hesape", "huey")]
    for library in ran_twice:
        assert library.sound
        library.counted["doubled"] = 1
    assert [library.sound for library in ran_twice] == [False, True], "only ours promises that of a drain"


@pytest.mark.parametrize("kind", ["scheduled", "failed"])
def test_a_script_copies_the_one_job_that_is_stored(kind: str) -> None:
    harness = SqliteHarness()
    harness.start()
    try:
        script = Script(BENCH / "ceilings/sqlite.py")
        with opened(harness, "copies") as driver:
            figures.pile_up(hesape.Queue(driver), **{kind: 1})
            assert script.copies is not None
            script.copies(harness.settings("copies"), 6)
            rows: Sequence[Any] = harness.raw("copies").rows()
            assert [row["state"] for row in rows] == [kind] * 7
            assert len({row["id"] for row in rows}) == 7
    finally:
        harness.stop()
