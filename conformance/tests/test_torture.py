from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from click.testing import CliRunner

from hesape.driver import Fact
from hesape.drivers.sqlite.testing import SqliteHarness
from hesape_conformance import installed
from hesape_conformance.cli import main
from hesape_conformance.history import Kind, Verdict, Violation
from hesape_conformance.saboteurs.copying import plant
from hesape_conformance.saboteurs.model import Saboteur
from hesape_conformance.torture import chaos
from hesape_conformance.torture.flat import FlatReport, Footprint, flat, look
from hesape_conformance.torture.plan import DECK, Blow, Strike, schedule
from hesape_conformance.torture.report import EXITS, Outcome, Report
from hesape_conformance.torture.run import Torment, torture
from hesape_conformance.torture.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hesape_conformance.harness import Harness

STORES = [name for name in installed.names() if Fact.MULTI_PROCESS in installed.find_harness(name).spec().facts]
SECONDS, SEED = 20.0, 1


@pytest.fixture(params=STORES)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    made = installed.find_harness(request.param)()
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.timeout(600)
def test_twenty_seconds_of_torture_lose_nothing_and_bring_nothing_back(harness: Harness) -> None:
    found = torture(harness, Torment(seconds=SECONDS, seed=SEED))
    assert found.outcome is Outcome.PASSED, found.text()
    assert found.verdict.pushed > 0
    assert found.verdict.duplicates["killed"] > 0
    assert found.settles["batch"] > 0
    assert found.settles["each"] > 0


@pytest.mark.timeout(300)
def test_a_worker_is_flat_over_some_thousand_jobs() -> None:
    store = SqliteHarness()
    store.start()
    try:
        found = flat(store, 6_000)
    finally:
        store.stop()
    assert found.outcome is Outcome.PASSED, found.text()
    assert list(found.moments) == ["after 600 jobs", "after 2400 jobs", "after 4200 jobs", "after 6000 jobs"]


@pytest.mark.timeout(300)
def test_a_store_is_tortured_then_worked_beside_a_worker_that_idles() -> None:
    arguments = ["torture", "sqlite", "--seconds", "1", "--seed", str(SEED), "--jobs", "100", "--idle", "3", "--json"]
    ran = CliRunner().invoke(main, arguments)
    chaos_, jobs, idle = json.loads(ran.stdout)
    assert chaos_["counts"]["pushed"] > 0
    assert set(jobs["moments"]) == {f"after {n} jobs" for n in (10, 40, 70, 100)}
    assert len(idle["moments"]) == 4
    assert idle["idle_s"] >= 3
    assert (jobs["problems"], idle["problems"]) == ([], [])


def test_a_worker_that_is_just_being_replaced_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone, here = 2**22 + 1, os.getpid()
    seen = [[gone, here], [], [gone], [here]]

    class Replacing:
        pid = here
        until = Work.until

        def workers(self) -> list[int]:
            return seen.pop(0)

    monkeypatch.setattr("hesape_conformance.torture.flat._SETTLE_S", 0.0)
    found = look(Replacing())  # type: ignore[arg-type]
    assert [one.pid for one in found.values()] == [here, here]
    assert seen == []


def report(**changes: Any) -> Report:
    verdict = Verdict(pushed=10, delivered=12, duplicates=Counter(killed=2), stale_attempts=1, kills_that_hit=2)
    verdict.redelivered_s = [0.5, 1.5]
    made = Report(
        driver="mine",
        server="MyStore 1",
        seconds=20.0,
        seed=5,
        took_s=30.0,
        drained_s=2.0,
        settles={"batch": 2, "each": 1},
        blows={"kill a worker": 2},
        spared=["kill the server"],
        problems=[],
        verdict=verdict,
    )
    return attrs.evolve(made, **changes)


def test_a_run_passes_that_found_nothing_and_hit_enough() -> None:
    assert report().outcome is Outcome.PASSED
    assert EXITS[Outcome.PASSED] == 0


@pytest.mark.parametrize("what", ["kills_that_hit", "stale_attempts"])
def test_a_run_that_hit_too_little_is_no_pass(what: str) -> None:
    made = report()
    setattr(made.verdict, what, 0)
    assert EXITS[made.outcome] == 3


@pytest.mark.parametrize("changes", [{"drained_s": None}, {"problems": ["a supervisor ended"]}])
def test_a_run_fails_that_left_work_or_lost_a_process(changes: dict[str, Any]) -> None:
    assert EXITS[report(**changes).outcome] == 1


def test_a_run_fails_that_found_anything_and_says_what() -> None:
    made = report()
    made.verdict.violations.append(Violation(Kind.LOST, "j", "nobody finished it"))
    assert made.outcome is Outcome.FAILED
    assert "lost 1" in made.text()
    assert "! lost: j: nobody finished it" in made.text()
    assert made.to_dict()["violations"]["lost"] == 1


def test_a_report_names_its_seed_its_counts_and_what_couldnt_be_done() -> None:
    text = report().text()
    for said in (
        "seed 5",
        "batch 2, each 1",
        "pushed 10",
        "duplicates 2 (killed 2)",
        "not possible here: kill the server",
        "p50 1.50 s",
    ):
        assert said in text
    assert json.loads(json.dumps(report().to_dict()))["redelivery_s"] == {"n": 2, "p50": 1.5, "p99": 1.5}


def test_a_schedule_is_decided_by_its_seed() -> None:
    assert schedule(7, 60, Blow) == schedule(7, 60, Blow)
    assert schedule(7, 60, Blow) != schedule(8, 60, Blow)
    assert all(strike.at_s < 60 for strike in schedule(7, 60, Blow))


def test_a_long_schedule_deals_every_possible_blow_and_no_other() -> None:
    strikes = schedule(7, 100, set(Blow) - {Blow.CUT})
    assert {strike.blow for strike in strikes} == set(DECK) - {Blow.CUT}


def test_an_embedded_store_suffers_no_blow_to_a_server_and_others_nothing_on_servers_that_arent_ours() -> None:
    store = SqliteHarness()
    servers = {Blow.CUT, Blow.KILL_SERVER, Blow.RESTART_SERVER}
    assert chaos.possible(store, networked=False) == set(Blow) - servers
    assert not chaos.possible(store, networked=True) & servers


def test_what_was_stopped_goes_on_in_time_however_long_strikes_take_that_hit_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[float] = []

    def slow(*_: object) -> str:
        time.sleep(0.3)
        return ""

    monkeypatch.setattr(chaos.Chaos, "_outage", slow)
    idle: Any = SimpleNamespace(tend=lambda: None)
    struck = chaos.Chaos(SqliteHarness(), "unused", idle, idle, lambda _: None)
    began = time.monotonic()
    struck._then(struck._ends, 0.5, lambda: ended.append(time.monotonic() - began))
    struck.run([Strike(at_s=0, blow=Blow.OUTAGE, pick=0, for_s=0) for _ in range(5)], 4.0, lambda: True)
    assert ended[0] < 2
    assert struck.dealt == Counter()


def footprints(**changes: int) -> dict[str, Footprint]:
    return {"worker": attrs.evolve(Footprint(1, 40_000, 10, 8, 3), **changes)}


@pytest.mark.parametrize(
    ("changes", "flat_"),
    [
        ({"resident_kib": 42_048}, True),
        ({"resident_kib": 42_049}, False),
        ({"handles": 11}, False),
        ({"threads": 7}, False),
        ({"connections": 4}, False),
        ({"pid": 2}, False),
    ],
)
def test_what_grows_or_was_replaced_isnt_flat(changes: dict[str, int], flat_: bool) -> None:  # noqa: FBT001
    moments = {"after 10 jobs": footprints(), "after 100 jobs": footprints(**changes)}
    made = FlatReport(driver="mine", server="MyStore 1", jobs=100, took_s=1.0, moments=moments)
    assert (made.outcome is Outcome.PASSED) == flat_
    assert ("!" in made.text()) == (not flat_)


def test_a_pool_that_opened_one_more_connection_and_no_other_is_flat() -> None:
    moments = {"after 10": footprints(), "after 100": footprints(connections=4), "after 190": footprints(connections=4)}
    assert FlatReport(driver="mine", server="MyStore 1", jobs=190, took_s=1.0, moments=moments).problems == []


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["memory"], ["--url", "sqlite:///x.db"], ["sqlite", "redis", "--url", "x"]]
)
def test_what_cant_be_tortured_is_said(arguments: list[str]) -> None:
    ran = CliRunner().invoke(main, ["torture", *arguments])
    assert ran.exit_code == 4
    assert "no harness" in ran.output or "--url" in ran.output


@pytest.mark.timeout(300)
def test_a_driver_that_lets_a_stale_worker_delete_is_found_out(tmp_path: Path) -> None:
    unfenced = Saboteur(
        name="unfenced",
        does="Deletes whoever asks.",
        driver="sqlite",
        file="hesape/drivers/sqlite/statements.py",
        line='DELETE: Final = f"DELETE FROM hesape_jobs WHERE {_CURRENT}"',
        instead='DELETE: Final = "DELETE FROM hesape_jobs WHERE id = ? AND ? IS NOT NULL AND ? > 0"',
        fails=["L4"],
    )
    plant(unfenced, tmp_path)
    command = [sys.executable, "-m", "hesape_conformance.cli", "torture", "sqlite", "--json"]
    command += ["--seconds", str(SECONDS), "--seed", str(SEED)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    [found] = json.loads(done.stdout)
    assert found["violations"][str(Kind.STALE)] > 0
