"""Runs the fenced blocks of a page, in order, in the working directory: `python docs/blocks.py PAGE`.

    python      run, all of a page in one namespace
    sh          run by bash, which stops at the first command that fails
    text        what the block before it printed on standard output; `...` stands for anything
    toml, json  read

A block after a line such as "`jobs.py`:" is written to that file instead. A block that isn't run has a reason before
it, `<!-- not run: it would end this machine -->`. A page that says `<!-- files of: FOLDER -->` quotes that folder's
files: its blocks with a file's name must stand in that file as they are, and the whole file is written instead.
"""
# ruff: noqa: INP001 - a program beside the pages, no package

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
_BLOCK: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE: Final = re.compile(r"`([\w./-]+)`:")
_NOT_RUN: Final = re.compile(r"<!-- not run: .{8,} -->")
_QUOTES: Final = re.compile(r"^<!-- files of: (\S+) -->$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block: its language, its text, the line before it, and where it begins."""

    language: str
    text: str
    before: str
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page."""
    found = []
    for match in _BLOCK.finditer(page):
        lines = page[: match.start()].rstrip().splitlines()
        line = page.count("\n", 0, match.start()) + 2
        found.append(Block(match[1], match[2], lines[-1].strip() if lines else "", line))
    return found


class Run:
    """One page's run."""

    def __init__(self, page: Path, text: str) -> None:
        """Begin with an empty namespace."""
        self._page = page
        self._quoted = _QUOTES.search(text)
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""
        self.ran = 0

    def block(self, block: Block) -> None:
        """Do what is to be done with a block; whatever is wrong is raised."""
        if _NOT_RUN.fullmatch(block.before):
            self._printed = "..."
            return
        if named := _FILE.fullmatch(block.before):
            self._file(named[1], block.text)
            return
        handler = getattr(self, f"_{block.language}", None)
        if handler is None:
            message = f"a block of {block.language or 'no language'}: expected python, sh, text, toml or json"
            raise ValueError(message)
        handler(block)

    def _file(self, name: str, text: str) -> None:
        if self._quoted is not None:
            source = (ROOT / self._quoted[1] / name).read_text(encoding="utf-8")
            if text not in source and textwrap.indent(text, "    ") not in source:
                message = f"this isn't in {self._quoted[1]}/{name} as it is"
                raise ValueError(message)
            text = source
            self.ran += 1
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(self._page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self._names)  # noqa: S102 - the project's own pages
        self._printed = printed.getvalue()
        self.ran += 1

    def _sh(self, block: Block) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text], capture_output=True, text=True, check=False, timeout=60
        )
        if done.returncode:
            message = f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}"
            raise ValueError(message)
        self._printed = done.stdout
        self.ran += 1

    def _text(self, block: Block) -> None:
        wanted = [".*".join(map(re.escape, line.split("..."))) for line in _lines(block.text)]
        if not re.fullmatch("\n".join(wanted), "\n".join(_lines(self._printed)), re.DOTALL):
            message = f"expected {block.text!r}, printed was {self._printed!r}"
            raise ValueError(message)

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)

    def _json(self, block: Block) -> None:
        json.loads(block.text)


def _lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def main(page: Path) -> int:
    """Run a page; the exit code."""
    text = page.read_text(encoding="utf-8")
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    sys.path.insert(0, "")
    run = Run(page, text)
    for block in blocks(text):
        try:
            run.block(block)
        except BaseException:
            sys.stderr.write(f"{page}, line {block.line}:\n{block.text}\n")
            raise
    sys.stdout.write(f"{run.ran} blocks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
