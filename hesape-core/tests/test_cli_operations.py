from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hesape as library
from hesape import Job, plugins, system_grant
from hesape.cli import doctor as doctors
from hesape.plugins import Plugins
from hesape.queue import UNREADABLE_FLAG

Hesape = Callable[..., Any]
_numbers = count()


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a driver whose import ends the process; its module."""
    folder = tmp_path / "site"
    folder.mkdir()
    module = f"hesape_broken_{next(_numbers)}"
    (folder / f"{module}.py").write_text("raise SystemExit(7)")
    metadata = folder / "acme_jobs-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-jobs\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[hesape.drivers]\nacme = {module}\n[hesape.plugins]\nw = {module}\n")
    monkeypatch.syspath_prepend(folder)
    return module


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look anew at what is installed."""
    found: list[Plugins] = []

    def installed() -> Plugins:
        if not found:
            found.append(Plugins())
        return found[0]

    monkeypatch.setattr(plugins, "installed", installed)


# drivers


def test_drivers_lists_what_is_installed_and_what_it_claims(hesape: Hesape) -> None:
    found = {one["name"]: one for one in hesape("drivers", "--json").json["plugins"]}
    assert found["sqlite"]["distributions"] == ["hesape-core 0.1.0"]
    assert (found["sqlite"]["contract"], found["sqlite"]["kind"]) == ([1, 0], "driver")
    assert {"durable", "multi_process"} <= set(found["sqlite"]["facts"])
    assert "sqlite" in hesape("drivers").out


def test_a_broken_plugin_is_named_and_the_exit_code_is_1(hesape: Hesape, broken: str) -> None:
    ran = hesape("drivers")
    assert ran.code == 1
    text = "could not be loaded: SystemExit: 7"
    assert f"error[driver-broken]: driver 'acme' from acme-jobs 1.2 {text}" in ran.err
    assert f"error[driver-broken]: observer 'w' from acme-jobs 1.2 {text}" in ran.err
    assert "sqlite" in ran.out
    found = {(one["name"], one["kind"]): one for one in hesape("drivers", "--json").json["plugins"]}
    assert found["acme", "driver"]["problem"]["code"] == "driver-broken"


def test_a_blocked_plugin_is_no_fault(hesape: Hesape, broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESAPE_BLOCK", "acme-jobs")
    ran = hesape("drivers")
    assert "driver-blocked" in ran.out
    assert ran.code == 0


def test_a_broken_plugin_breaks_no_other_command(hesape: Hesape, broken: str) -> None:
    assert hesape("--help").code == 0
    assert hesape("push", "x", "--tenant", "acme", "--action", "x").code == 0
    assert hesape("status").code == 0
    assert hesape("config", "show").code == 0


# migrate


def test_migrate_applies_the_missing_steps_once(hesape: Hesape, tmp_path: Path) -> None:
    first = hesape("migrate", "--json").json
    assert (first["connection"], first["version"]) == ("default", first["applied"][-1]["number"])
    again = hesape("migrate")
    assert again == (0, f"default is at version {first['version']}\n", "")


def test_plan_and_sql_show_the_missing_steps_and_change_nothing(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("[connections.main]\nurl = 'sqlite:///m.db'\nmigrate = 'manual'")
    plan = hesape("migrate", "--plan", "--json").json["missing"]
    assert plan[0]["number"] == 1
    assert "CREATE TABLE" in hesape("migrate", "--sql").out
    assert hesape("push", "x", "--tenant", "acme", "--action", "x").err.startswith("error[schema]: ")
    assert hesape("migrate", "--plan", "--json").json["missing"] == plan
    hesape("migrate")
    assert hesape("migrate", "--plan") == (0, "nothing is missing\n", "")
    assert hesape("migrate", "--plan", "--since", "0", "--json").json["missing"] == plan
    assert hesape("push", "x", "--tenant", "acme", "--action", "x").code == 0


FAILOVER = """
default = "safe"
[connections.safe]
driver = "failover"
connections = ["first", "second"]
[connections.first]
url = "sqlite:///first.db"
[connections.second]
url = "sqlite:///second.db"
"""


def test_every_store_behind_a_failover_connection_is_migrated_by_name(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(FAILOVER)
    plan = hesape("migrate", "--plan").out
    assert "-- connection first (sqlite)" in plan
    assert "-- connection second (sqlite)" in plan
    assert hesape("migrate", "--sql").out.count("CREATE TABLE hesape_jobs") == 2
    shown = hesape("migrate", "--plan", "--json").json
    assert (shown["connection"], [member["connection"] for member in shown["members"]]) == ("safe", ["first", "second"])
    assert [member["missing"][0]["number"] for member in shown["members"]] == [1, 1]
    done = hesape("migrate").out.splitlines()
    version = shown["members"][0]["missing"][-1]["number"]
    assert [line for line in done if "is at" in line] == [
        f"first is at version {version}",
        f"second is at version {version}",
    ]
    assert hesape("migrate", "--json").json == {
        "connection": "safe",
        "members": [
            {"connection": name, "driver": "sqlite", "version": version, "applied": []} for name in ("first", "second")
        ],
    }


def test_a_store_that_can_not_be_migrated_is_named_and_the_others_are(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(FAILOVER)
    (tmp_path / "first.db").mkdir()
    ran = hesape("migrate", "--json")
    assert ran.code == 1
    first, second = ran.json["members"]
    assert (first["connection"], first["problem"]["code"][:6]) == ("first", "store-")
    assert second["version"] >= 1
    ran = hesape("migrate")
    assert ran.code == 1
    assert ran.out.splitlines()[0] == "-- connection first (sqlite)"
    assert re.match(r"error\[store-[a-z]+\]: connection first: ", ran.err)


# config show


def test_config_show_masks_every_secret(hesape: Hesape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hush")
    (tmp_path / "hesape.toml").write_text(
        "default = 'a'\n[connections.a]\nurl = 'postgres://u:${PW}@h/d?sslpassword=hush'\npassword = 'hush'\n"
        "prefix = 'p'\n[signing.keys]\nk1 = 'hush-hush-hush-hush'\n[worker]\nconcurrency = 8\n"
    )
    ran = hesape("config", "show", "--json")
    assert ran.code == 0
    assert ran.json == {
        "file": str(tmp_path / "hesape.toml"),
        "folder": str(tmp_path),
        "default": "a",
        "connections": [
            {
                "name": "a",
                "driver": "postgres",
                "url": "postgres://u:***@h/d?sslpassword=***",
                "options": {"password": "***", "prefix": "p"},
            }
        ],
        "signing": {"keys": ["k1"], "sealing": "k1", "accept_unsealed": False},
        "worker": {"concurrency": 8},
    }
    shown = hesape("config", "show").out
    assert "hush" not in shown + ran.out
    assert "k1 (sealing: k1)" in shown


def test_config_show_tells_what_can_not_be_resolved_and_shows_the_rest(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(
        "default = 'a'\n[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = '${NOT_SET}'"
    )
    ran = hesape("config", "show")
    assert ran.code == 1
    assert "connections.b.url: the environment variable NOT_SET isn't set" in ran.out
    assert "sqlite:///a.db" in ran.out


def test_config_show_without_a_file_says_so(hesape: Hesape) -> None:
    assert "none; the defaults apply" in hesape("config", "show").out


# doctor


def findings(ran: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"ok": [], "note": [], "wrong": []}
    for one in ran.json["findings"]:
        found[one["state"]].append(f"{one['what']}: {one['text']}")
    return found


def test_doctor_finds_nothing_wrong_with_a_new_store(hesape: Hesape, tmp_path: Path) -> None:
    hesape("migrate")
    ran = hesape("doctor", "--json")
    assert ran.code == 0
    found = findings(ran)
    assert found["wrong"] == []
    assert "connection default: its tables are at version 1" in found["ok"]
    assert "keys: no signing keys: whoever can write to a store can alter jobs" in found["note"]


def test_doctor_says_what_is_wrong_with_the_configuration(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("wroker = 1")
    ran = hesape("doctor", "--json")
    assert ran.code == 1
    assert "wroker: unknown key; did you mean 'worker'?" in findings(ran)["wrong"][0]


def test_doctor_looks_at_every_connection_by_itself(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(
        "default = 'a'\n[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = 'acme://h'\n"
        "[connections.c]\nurl = 'memory://'\n"
    )
    ran = hesape("doctor", "--json")
    found = findings(ran)
    assert ran.code == 1
    assert [text.partition(" (")[0] for text in found["wrong"]] == [
        "connection b: driver-unknown: no driver named 'acme'"
    ]
    assert any(text.startswith("connection c: memory isn't durable") for text in found["note"])
    assert hesape("doctor", "-c", "a").code == 0


def test_doctor_names_a_broken_plugin(hesape: Hesape, broken: str) -> None:
    ran = hesape("doctor", "--json")
    assert ran.code == 1
    assert sorted(text.partition(":")[0] for text in findings(ran)["wrong"]) == ["driver acme", "observer w"]


def test_doctor_warns_when_there_are_many_failed_jobs(
    hesape: Hesape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctors, "MANY_FAILED", 1)
    queue = library.connect(f"sqlite:///{tmp_path / 'hesape.db'}")
    grant = system_grant("x", "acme")
    queue.push(grant, Job.new(grant, "x"))
    queue.pop()[0].fail("no")
    queue.close()
    ran = hesape("doctor", "--json")
    assert ran.code == 0
    text = "connection default: 1 failed jobs: hesape failed list, then retry or prune them"
    assert text in findings(ran)["note"]


def test_doctor_finds_a_failed_job_that_was_tampered_with(hesape: Hesape, tmp_path: Path) -> None:
    file = tmp_path / "hesape.db"
    queue = library.connect(f"sqlite:///{file}")
    grant = system_grant("x", "acme")
    queue.push(grant, Job.new(grant, "x"))
    queue.pop()[0].fail("no")
    queue.close()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("update hesape_jobs set tenant = 'other'")
    ran = hesape("doctor", "--json")
    assert ran.code == 1
    assert "1 failed jobs can't be run here" in findings(ran)["wrong"][0]


def test_doctor_says_when_jobs_wait_for_a_key(hesape: Hesape, tmp_path: Path) -> None:
    queue = library.connect(f"sqlite:///{tmp_path / 'hesape.db'}")
    queue.flag(UNREADABLE_FLAG).set("the key 'k2' isn't configured here")
    queue.close()
    ran = hesape("doctor", "--json")
    assert ran.code == 1
    assert findings(ran)["wrong"] == [
        "connection default: jobs wait for a key or a version that a worker lacks: the key 'k2' isn't configured here"
    ]


@pytest.mark.parametrize(
    ("signing", "state", "text"),
    [
        ("keys = { k1 = 'short' }", "wrong", "hesape.toml: signing: the signing key 'k1' is too short"),
        ("keys = { k1 = '0123456789abcdef' }", "ok", "keys: sealing with k1"),
        ("sealing = ''\nkeys = { k1 = '0123456789abcdef' }", "note", "keys: k1 are read, but nothing is sealed"),
        (
            "accept_unsealed = true\nkeys = { k1 = '0123456789abcdef' }",
            "note",
            "keys: sealing with k1; unsealed records run too",
        ),
    ],
)
def test_doctor_explains_the_keys(hesape: Hesape, tmp_path: Path, signing: str, state: str, text: str) -> None:
    (tmp_path / "hesape.toml").write_text(f"[signing]\n{signing}\n")
    assert any(text in one for one in findings(hesape("doctor", "--json"))[state])


def test_doctor_leaves_local_drivers_alone(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("[connections.a]\ndriver = 'null'")
    ran = hesape("doctor", "--json")
    assert ran.code == 0
    assert "connection a: null runs or drops its jobs here and keeps nothing" in findings(ran)["note"]


@pytest.mark.parametrize("argv", [(), ("-c", "safe")])
def test_doctor_looks_at_each_store_behind_a_failover_connection_once(
    hesape: Hesape, tmp_path: Path, argv: tuple[str, ...]
) -> None:
    (tmp_path / "hesape.toml").write_text(FAILOVER)
    hesape("migrate")
    ran = hesape("doctor", *argv, "--json")
    assert ran.code == 0
    found = [f"{one['what']}: {one['text']}" for one in ran.json["findings"] if one["what"].startswith("connection")]
    assert found[0] == "connection safe: failover: each push goes to the first of first, second that takes it"
    assert not any(text.startswith("connection safe") for text in found[1:])
    for name in ("first", "second"):
        assert found.count(f"connection {name}: its tables are at version 1") == 1


def test_doctor_names_the_store_behind_a_failover_connection_that_is_away(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(FAILOVER)
    (tmp_path / "first.db").mkdir()
    ran = hesape("doctor", "-c", "safe", "--json")
    assert ran.code == 1
    assert {text.partition(": store-")[0] for text in findings(ran)["wrong"]} == {"connection first"}


def test_doctor_says_what_a_store_that_can_not_be_reached_answers(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.db").mkdir()
    ran = hesape("doctor", "--json")
    assert ran.code == 1
    assert all(text.startswith("connection default: store-") for text in findings(ran)["wrong"])


@pytest.mark.parametrize(
    ("version", "state", "text"),
    [
        ("0", "note", "its tables are at version 0 of 1: hesape migrate brings them up"),
        ("99", "wrong", "its tables are at version 99, this hesape knows 1: upgrade it"),
    ],
)
def test_doctor_compares_the_version_of_the_tables(
    hesape: Hesape, monkeypatch: pytest.MonkeyPatch, version: str, state: str, text: str
) -> None:
    hesape("migrate")
    monkeypatch.setattr("hesape.drivers.sqlite.driver.SqliteDriver.schema_version", lambda _: int(version))
    assert f"connection default: {text}" in findings(hesape("doctor", "--json"))[state]


def test_doctor_notes_a_clock_that_is_far_from_this_machine_s(hesape: Hesape, monkeypatch: pytest.MonkeyPatch) -> None:
    hesape("migrate")
    monkeypatch.setattr("hesape.drivers.sqlite.driver.SqliteDriver.now", lambda _: 1_000_000)
    assert any(
        "s apart; the store's decides what is due" in one for one in findings(hesape("doctor", "--json"))["note"]
    )
