from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hesape.cli.root import COMMANDS

Hesape = Callable[..., Any]
FILE = """
default = "main"
[connections.main]
url = "sqlite:///main.db"
[connections.mirror]
url = "${NOT_SET}"
[worker]
queue = "high=3, low=1"
"""


@pytest.fixture
def complete(hesape: Hesape, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> Callable[..., list[str]]:
    """What is offered for the last of some words, by the protocol of bash."""
    (tmp_path / "hesape.toml").write_text(FILE)

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_HESAPE_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("hesape", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            hesape()
        assert ended.value.code == 0
        offered = [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]
        assert not (tmp_path / "main.db").exists(), "a store was opened"
        return [text for text in offered if text]

    return ask


def test_commands_are_completed_with_none_of_them_loaded(complete: Callable[..., list[str]], tmp_path: Path) -> None:
    assert complete("") == sorted(COMMANDS)
    assert complete("st") == ["status"]
    assert complete("--ver") == ["--version"]
    ask = (
        "import sys; from hesape.cli import main\ntry: main([])\nexcept SystemExit: "
        "print(*[name for name in sys.modules if name.startswith('hesape.cli.')])"
    )
    variables = {"_HESAPE_COMPLETE": "zsh_complete", "COMP_WORDS": "hesape wo", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", ask], env=variables, capture_output=True, text=True, check=True)
    offered = ["plain", "work", "Run jobs.", "plain", "workers", "List the workers and what they hold."]
    assert done.stdout.splitlines() == [*offered, "hesape.cli.output hesape.cli.root"]


def test_subcommands_and_options_are_completed(complete: Callable[..., list[str]]) -> None:
    assert complete("failed", "f") == ["flush", "forget"]
    assert complete("failed", "list", "--be") == ["--before"]
    assert complete("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("before", [("status", "-c"), ("failed", "list", "--connection"), ("work",), ("restart",)])
def test_connections_are_completed(complete: Callable[..., list[str]], before: tuple[str, ...]) -> None:
    assert complete(*before, "m") == ["main", "mirror"]
    assert complete(*before, "mir") == ["mirror"]


def test_connections_of_the_file_that_is_named_are_completed(
    complete: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text("[connections.other]\nurl = 'sqlite:///main.db'")
    assert complete("status", "--config", "other.toml", "-c", "") == ["other"]


TARGETS = [("pause",), ("resume",), ("clear",), ("monitor", "low"), ("push", "x", "{}", "--queue")]
QUEUES = [("work", "--queue"), ("failed", "list", "--queue"), ("failed", "retry", "--all", "--queue")]


@pytest.mark.parametrize("before", [*TARGETS, *QUEUES])
def test_queues_are_completed(complete: Callable[..., list[str]], before: tuple[str, ...]) -> None:
    assert complete(*before, "") == ["default", "high", "low"]
    assert complete(*before, "h") == ["high"]
    assert complete(*before, "other:") == []


@pytest.mark.parametrize("before", TARGETS)
def test_queues_of_a_connection_are_completed_where_one_may_be_named(
    complete: Callable[..., list[str]], before: tuple[str, ...]
) -> None:
    assert complete(*before, "mirror:d") == ["mirror:default"]
    assert complete(*before, ":l") == [":low"]
    assert complete(before[0], "-c", "main", *before[1:], "mirror:d") == []
    assert complete(before[0], "-c", "main", *before[1:], ":l") == [":low"]


@pytest.mark.parametrize("before", QUEUES)
def test_no_connection_is_completed_where_the_queue_is_one_of_the_chosen_connection(
    complete: Callable[..., list[str]], before: tuple[str, ...]
) -> None:
    assert complete(*before, "mirror:d") == complete(*before, ":l") == []


def test_a_wrong_configuration_completes_nothing_and_says_nothing(
    complete: Callable[..., list[str]], tmp_path: Path
) -> None:
    (tmp_path / "hesape.toml").write_text("wroker = 1")
    assert complete("status", "-c", "") == complete("pause", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(hesape: Hesape, shell: str) -> None:
    ran = hesape("completion", shell)
    assert ran.code == 0
    assert f"_HESAPE_COMPLETE={shell}_complete" in ran.out
    assert hesape("completion", shell, "--json").json == {"shell": shell, "script": ran.out.removesuffix("\n")}


def test_an_unknown_shell_is_wrong_usage(hesape: Hesape) -> None:
    ran = hesape("completion", "ksh")
    assert ran.code == 2
    assert "'ksh' is not one of 'bash', 'zsh', 'fish'" in ran.err


class Bash:
    """An interactive bash that has read the script, in a folder with the file above."""

    def __init__(self, folder: Path) -> None:
        (folder / "hesape.toml").write_text(FILE)
        self._terminal, theirs = pty.openpty()
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        environment = {"PATH": path, "PS1": "ready> ", "TERM": "dumb", "INPUTRC": os.devnull}
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-i"],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._read(r"ready> ")
        self.run("show() { printf '<%s>' \"$*\"; }; source <(hesape completion bash)")

    def run(self, line: str) -> None:
        self._type(f"{line}\n", r"\n.*ready> ")

    def completed(self, text: str) -> str:
        """What stands on the line after Tab."""
        return self._type(f"{text}\t\1show \n", r"<(.*)>.*ready> ")[1]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def _type(self, text: str, pattern: str) -> re.Match[str]:
        os.write(self._terminal, text.encode())
        return self._read(pattern)

    def _read(self, pattern: str) -> re.Match[str]:
        seen, deadline = "", time.monotonic() + 30
        while not (found := re.search(pattern, seen, re.DOTALL)):
            assert select.select([self._terminal], [], [], deadline - time.monotonic())[0], (
                f"{pattern!r} not in {seen!r}"
            )
            seen += os.read(self._terminal, 4_096).decode()
        return found


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    opened = Bash(tmp_path)
    yield opened
    opened.close()


def test_bash_completes_with_it(bash: Bash) -> None:
    assert bash.completed("hesape status -c ma") == "hesape status -c main"
    assert bash.completed("hesape push x '{\"a\": 1}' --queue hi") == 'hesape push x {"a": 1} --queue high'


def test_bash_completes_though_it_splits_words_at_colons_and_equals_signs(bash: Bash) -> None:
    assert bash.completed("hesape pause mirror:d") == "hesape pause mirror:default"
    assert bash.completed("hesape pause :l") == "hesape pause :low"
    assert bash.completed("hesape monitor main:low mirror:h") == "hesape monitor main:low mirror:high"
    assert bash.completed("hesape status --connection=ma") == "hesape status --connection=main"
    assert bash.completed("hesape push x --queue=mirror:h") == "hesape push x --queue=mirror:high"
    assert bash.completed("hesape status --connection=main --conf") == "hesape status --connection=main --config"
    assert bash.completed("hesape status --connection=") == "hesape status --connection=m"
    assert bash.completed("hesape pause mirror:") == "hesape pause mirror:"
    bash.run("COMP_WORDBREAKS=${COMP_WORDBREAKS//:}")
    assert bash.completed("hesape pause mirror:d") == "hesape pause mirror:default"
