"""What is counted in a text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_WORD = re.compile("[^\\W_]+(?:['\u2019-][^\\W_]+)*")


class Figures(NamedTuple):
    """How much there is of a text."""

    words: int
    lines: int
    longest: str
    """The first of its longest words."""


def count(text: str) -> Figures:
    """Count a text."""
    words = _WORD.findall(text)
    return Figures(len(words), len(text.splitlines()), max(words, key=len, default=""))


def read(file: Path) -> str:
    """The text of a UTF-8 file."""
    return file.read_text(encoding="utf-8")
