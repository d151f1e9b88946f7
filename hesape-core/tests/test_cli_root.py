from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hesape.cli import root, status
from hesape.cli.root import COMMANDS

Hesape = Callable[..., Any]
PUSH = ("push", "x", "{}", "--tenant", "acme", "--action", "x")


def test_help_lists_every_command_and_loads_none_of_them() -> None:
    ask = (
        "import sys; from hesape.cli import main; main(['--help']);"
        "print(*[name for name in sys.modules if name.startswith('hesape.cli.') or name in ('rich', 'sqlite3')])"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert done.stdout.splitlines()[-1] == "hesape.cli.output hesape.cli.root"


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_usage(hesape: Hesape) -> None:
    ran = hesape()
    assert (ran.code, ran.out) == (2, "")
    assert "Commands:" in ran.err


def test_the_version_is_told(hesape: Hesape) -> None:
    assert hesape("--version") == (0, "hesape 0.1.0\n", "")


def test_an_unknown_command_names_the_nearest(hesape: Hesape) -> None:
    assert hesape("statsu") == (
        2,
        "",
        "error[usage]: no command 'statsu'; did you mean 'status'? (see hesape --help)\n",
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("push", "x"), "Missing option '--tenant' (see hesape push --help)"),
        (("push",), "Missing argument 'NAME' (see hesape push --help)"),
        (("status", "--nope"), "No such option '--nope' (see hesape status --help)"),
        (
            (*PUSH, "--delay", "soon"),
            (
                "Invalid value for '--delay': 'soon': expected seconds, or a number with ms, s, m, h, d or w, "
                "such as 90 or 15m (see hesape push --help)"
            ),
        ),
        (("failed", "retry"), "name the ids to retry, or --all (see hesape failed retry --help)"),
        (("migrate", "--since", "1"), "--since goes with --plan or --sql (see hesape migrate --help)"),
    ],
)
def test_wrong_usage_exits_with_2(hesape: Hesape, argv: tuple[str, ...], message: str) -> None:
    ran = hesape(*argv)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.replace(": --nope", " '--nope'") == f"error[usage]: {message}\n"


def test_an_error_of_ours_exits_with_1_and_its_code(hesape: Hesape) -> None:
    assert hesape("failed", "show", "7") == (
        1,
        "",
        "error[id-invalid]: job id '7': expected the canonical lower-case text of a UUID\n",
    )


def test_with_json_an_error_is_json_too(hesape: Hesape) -> None:
    ran = hesape("failed", "show", "7", "--json")
    assert ran.code == 1
    assert json.loads(ran.err) == {
        "error": {
            "code": "id-invalid",
            "message": "job id '7': expected the canonical lower-case text of a UUID",
            "retryable": False,
        }
    }


def test_an_error_nobody_expected_is_told_with_its_traceback(hesape: Hesape, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("surprise")

    monkeypatch.setattr(status, "_look", fail)
    ran = hesape("queues")
    assert (ran.code, ran.err.splitlines()[-1]) == (1, "error[internal]: KeyError: 'surprise'")
    assert "Traceback" in ran.err


def test_a_reader_that_has_gone_is_no_traceback(tmp_path: Path) -> None:
    ask = "from hesape.cli import main; raise SystemExit(main(['drivers']))"
    with subprocess.Popen(
        [sys.executable, "-c", ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


# Configuration and connections.

TWO = """
default = "main"
[connections.main]
url = "sqlite:///main.db"
[connections.orders]
url = "sqlite:///orders.db"
"""


def pushed_to(hesape: Hesape, *argv: str) -> str:
    facts = hesape(*PUSH, *argv, "--json").json
    return f"{facts['connection']} {facts['queue']}"


def test_a_target_is_split_only_where_its_first_part_is_a_connection(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(TWO)
    assert pushed_to(hesape) == "main default"
    assert pushed_to(hesape, "--queue", "high") == "main high"
    assert pushed_to(hesape, "--queue", "orders:high") == "orders high"
    assert pushed_to(hesape, "--queue", "orders:") == "orders default"
    assert pushed_to(hesape, "--queue", "other:high") == "main other:high"
    assert pushed_to(hesape, "--queue", ":orders:high") == "main orders:high"
    assert pushed_to(hesape, "--queue", "main:high", "--connection", "orders") == "orders main:high"


def test_a_flag_beats_the_variable_which_beats_the_file(
    hesape: Hesape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hesape.toml").write_text(TWO)
    monkeypatch.setenv("HESAPE_CONNECTION", "orders")
    assert pushed_to(hesape) == "orders default"
    assert pushed_to(hesape, "-c", "main") == "main default"


def test_a_file_can_be_named(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[connections.named]\nurl = 'sqlite:///named.db'")
    assert pushed_to(hesape, "--config", "other.toml") == "named default"
    ran = hesape("status", "--config", "none.toml")
    assert (ran.code, ran.err) == (1, f"error[config]: {tmp_path}/none.toml: there is no such configuration file\n")


def test_an_unknown_connection_is_an_error_that_names_those_configured(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(TWO)
    ran = hesape("status", "-c", "order")
    assert ran.err.startswith("error[config]: no connection named 'order'; did you mean 'orders'? (configured: main, ")


def test_a_driver_that_is_not_installed_names_what_to_install(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("[connections.main]\nurl = 'acme://:hush@h'")
    ran = hesape("status")
    assert ran.code == 1
    assert ran.err.startswith("error[driver-unknown]: no driver named 'acme'")
    assert "hush" not in ran.err


# The question.


def asked(answer: bytes, folder: Path, *argv: str) -> tuple[int, str]:
    """Run a command line with a terminal to ask."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        ask = f"from hesape.cli import main; raise SystemExit(main({list(argv)!r}))"
        done = subprocess.run(
            [sys.executable, "-c", ask], stdin=theirs, capture_output=True, text=True, cwd=folder, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stdout + done.stderr


DESTROYING = [("clear", "default"), ("failed", "flush"), ("failed", "prune", "--older-than", "0")]


@pytest.mark.parametrize("argv", DESTROYING, ids=" ".join)
def test_without_a_terminal_nothing_is_destroyed_unless_forced(hesape: Hesape, argv: tuple[str, ...]) -> None:
    hesape(*PUSH)
    ran = hesape(*argv)
    assert ran.code == 2
    assert "There is no terminal to ask: add --force to do it" in ran.err
    assert hesape("queues", "--json").json["queues"][0]["pending"] == 1
    assert hesape(*argv, "--force").code == 0


def test_a_no_changes_nothing_and_a_yes_does_it(hesape: Hesape, tmp_path: Path) -> None:
    hesape(*PUSH)
    code, text = asked(b"n\n", tmp_path, "clear", "default")
    assert (code, "Remove 1 jobs of every tenant from default:default?" in text) == (1, True)
    assert "error[declined]: nothing was changed" in text
    assert hesape("queues", "--json").json["queues"][0]["pending"] == 1
    assert asked(b"y\n", tmp_path, "clear", "default")[0] == 0
    assert hesape("queues", "--json").json["queues"] == []


def test_every_command_but_the_groups_takes_json() -> None:
    context = root.root.make_context("hesape", ["status"])
    for name, entry in COMMANDS.items():
        if entry.module in {"work", "demo"}:
            continue
        command: Any = root.root.get_command(context, name)
        for one in getattr(command, "commands", {name: command}).values():
            assert any("--json" in option.opts for option in one.params), name


def test_a_queue_that_nobody_could_have_named_is_shown_among_the_others(hesape: Hesape, tmp_path: Path) -> None:
    assert hesape(*PUSH, "--queue", "odd").code == 0
    assert hesape(*PUSH).code == 0
    (file,) = tmp_path.rglob("*.db")
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("UPDATE hesape_jobs SET queue = ?, due_us = ? WHERE queue = 'odd'", ("o\ndd\x1b ", -(2**63)))
    for command in ("status", "queues"):
        assert hesape(command).code == 0
        ran = hesape(command, "--json")
        assert ran.code == 0, ran.err
        assert [row["queue"] for row in json.loads(ran.out)["queues"]] == ["default", "o\ndd\x1b "]


@pytest.mark.parametrize(
    ("line", "variable", "value"),
    [
        ("status", "PYTHONUNBUFFERED", "1"),
        ("status", "PYTHONUNBUFFERED", ""),
        ("drivers", "PYTHONIOENCODING", "ascii"),
        ("config show --json", "PYTHONUNBUFFERED", ""),
        ("--help", "PYTHONUNBUFFERED", ""),
    ],
)
def test_a_full_disk_is_one_line_and_exit_code_1(tmp_path: Path, line: str, variable: str, value: str) -> None:
    variables = {**os.environ, variable: value}
    with Path("/dev/full").open("w") as full:
        ask = [sys.executable, "-m", "hesape", *line.split()]
        run = partial(subprocess.run, ask, stdout=full, cwd=tmp_path, env=variables, text=True, check=False)
        done = run(stderr=subprocess.PIPE)
        assert done.returncode == 1
        message = "standard output can't be written: No space left on device"
        if "--json" in line:
            assert json.loads(done.stderr) == {"error": {"code": "output", "message": message, "retryable": False}}
        else:
            assert done.stderr == f"error[output]: {message}\n"
        assert run(stderr=full).returncode == 1


def test_a_closed_standard_output_is_no_fault(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -c 'import sys; from hesape.cli import main; sys.exit(main())' status >&-"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
