"""Every command answers a program: one JSON document, or one error with its code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import hesape as library
from hesape import Job, system_grant
from hesape.cli.root import root

Hesape = Callable[..., Any]
GRANT = system_grant("x", "acme")
FAILED = "01900000-0000-7000-8000-000000000001"


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


LEAVES = dict(leaves(root))
ANSWERS: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "clear": (("default", "--force"), {"connection", "queue", "removed"}),
    "completion": (("bash",), {"shell", "script"}),
    "config show": ((), {"file", "folder", "default", "connections", "signing", "worker"}),
    "doctor": ((), {"findings"}),
    "drivers": ((), {"plugins"}),
    "failed flush": (("--force",), {"removed"}),
    "failed forget": ((FAILED, "--force"), {"removed"}),
    "failed list": ((), {"jobs", "next"}),
    "failed prune": (("--older-than", "30d", "--force"), {"removed"}),
    "failed retry": ((FAILED,), {"retried"}),
    "failed show": (
        (FAILED,),
        {
            *("id", "name", "display_name", "queue", "tenant", "action", "authorized_by", "payload", "priority"),
            *("attempts", "exceptions", "pushed_at", "failed_at", "last_error", "problem"),
        },
    ),
    "migrate": ((), {"connection", "version", "applied"}),
    "monitor": (("default",), {"max", "busy", "queues"}),
    "pause": (("default",), {"connection", "queue", "paused"}),
    "push": (
        ("x", "{}", "--tenant", "acme", "--action", "x"),
        {"id", "name", "tenant", "action", "connection", "queue", "priority", "delay"},
    ),
    "queues": ((), {"queues"}),
    "restart": ((), {"connection", "restart"}),
    "resume": (("default",), {"connection", "queue", "paused"}),
    "status": (
        (),
        {"connection", "driver", "store", "workers", "pending", "delayed", "reserved", "failed", "now", "queues"},
    ),
    "workers": ((), {"now", "workers"}),
}
"""A call of each command, and the names in its document. `work` and `demo` have tests of their own."""
NO_CONFIGURATION = {"completion", "drivers"}
"""What needs none."""


@pytest.fixture
def store(tmp_path: Path) -> None:
    """A store with one failed job and one that waits."""
    with library.connect(f"sqlite:///{tmp_path / 'hesape.db'}") as queue:
        queue.push(GRANT, Job.new(GRANT, "x", id=FAILED))
        queue.pop()[0].fail("no")
        queue.push(GRANT, Job.new(GRANT, "x"))


def test_every_command_is_asked() -> None:
    assert {*ANSWERS, "work", "demo"} == set(LEAVES)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_offers_json(name: str) -> None:
    options = {option for parameter in LEAVES[name].params for option in parameter.opts}
    assert "--json" in options
    assert {"--config", "--connection", "-c"} <= options or name == "demo"


@pytest.mark.parametrize("name", ANSWERS)
def test_the_answer_is_one_document(hesape: Hesape, store: None, name: str) -> None:
    argv, fields = ANSWERS[name]
    ran = hesape(*name.split(), *argv, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    assert set(ran.json) == fields


@pytest.mark.parametrize("name", LEAVES)
def test_wrong_usage_is_an_error_with_its_code(hesape: Hesape, name: str) -> None:
    ran = hesape(*name.split(), "--json", "--nope")
    assert (ran.code, ran.out) == (2, "")
    said = json.loads(ran.err)["error"]
    assert (said["code"], said["retryable"]) == ("usage", False)


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - NO_CONFIGURATION))
def test_what_is_wrong_with_the_configuration_is_an_error_with_its_code(
    hesape: Hesape, tmp_path: Path, name: str
) -> None:
    (tmp_path / "hesape.toml").write_text("wroker = 1")
    ran = hesape(*name.split(), *ANSWERS[name][0], "--json")
    assert ran.code == 1
    if name == "doctor":  # whose answer is what is wrong
        assert [one["what"] for one in ran.json["findings"] if one["state"] == "wrong"] == ["configuration"]
    else:
        assert ran.out == ""
        assert json.loads(ran.err)["error"]["code"] == "config"


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - NO_CONFIGURATION - {"config show"}))
def test_a_store_that_can_not_be_used_is_an_error_with_its_code(hesape: Hesape, tmp_path: Path, name: str) -> None:
    (tmp_path / "hesape.db").write_text("this is no database" * 100)
    ran = hesape(*name.split(), *ANSWERS[name][0], "--json")
    assert ran.code == 1
    if name == "doctor":
        wrong = [one["text"] for one in ran.json["findings"] if one["state"] == "wrong"]
        assert wrong
        assert all(text.startswith("store-refused: ") for text in wrong)
    else:
        assert ran.out == ""
        said = json.loads(ran.err)["error"]
        assert (said["code"], said["retryable"]) == ("store-refused", False)


def test_work_logs_lines_of_json(tmp_path: Path, store: None) -> None:
    (tmp_path / "jobs.py").write_text("import hesape\napp = hesape.App()\n@app.handler('x')\ndef x() -> None: ...\n")
    line = [sys.executable, "-m", "hesape", "work", "--app", "jobs:app", "--once", "--json", "-v"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = [json.loads(text) for text in done.stderr.splitlines()]
    assert done.stdout == ""
    assert all({"time", "level", "message", "process"} <= set(one) for one in said)
    assert any(one.get("tenant") == "acme" for one in said), "no line about the job"
    line[line.index("jobs:app")] = "none:app"
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stderr)["error"]["code"]) == (1, "config")
