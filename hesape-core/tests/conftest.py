from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hesape.cli import main


class Ran(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def hesape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command line of hesape in an empty folder, without a terminal."""
    for name in ("HESAPE_CONNECTION", "HESAPE_CONFIG", "HESAPE_BLOCK", "HESAPE_DRIVERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*argv: str) -> Ran:
        code = main(argv)
        found = capsys.readouterr()
        return Ran(code, found.out, found.err)

    return run
