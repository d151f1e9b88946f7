from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
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


@pytest.mark.parametrize(
    "before",
    [("pause",), ("resume",), ("clear",), ("monitor", "low"), ("push", "x", "{}", "--queue"), ("work", "--queue")],
)
def test_queues_are_completed(complete: Callable[..., list[str]], before: tuple[str, ...]) -> None:
    assert complete(*before, "") == ["default", "high", "low"]
    assert complete(*before, "h") == ["high"]
    assert complete(*before, "mirror:d") == ["mirror:default"]
    assert complete(*before, ":l") == [":low"]
    assert complete(*before, "other:") == []


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


def test_bash_completes_with_it(tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text(FILE)
    script = """
        source <(hesape completion bash)
        COMP_WORDS=(hesape status -c ma) COMP_CWORD=3
        _hesape_completion hesape
        echo "${COMPREPLY[@]}"
    """
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("main\n", "")
