"""The operations of the store: one Lua script each, made of its file and of the parts that it names."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

import attrs

_FOLDER: Final = Path(__file__).parent
_PARTS: Final = re.compile(r"^-- parts:(.*)\n", re.MULTILINE)


@attrs.frozen
class Script:
    """One operation as the server runs it."""

    name: str
    text: str = attrs.field(repr=False)
    sha: str = attrs.field(repr=False)
    writes: bool
    """Whether it may change anything; what doesn't runs on a replica too, and can't have an unknown outcome."""


def load(name: str) -> Script:
    """Read `name`.lua, with its parts in place of the line that names them."""
    text = (_FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    found = _PARTS.search(text)
    assert found is not None, name  # noqa: S101 - a test loads every file
    parts = [(_FOLDER / "parts" / f"{part}.lua").read_text(encoding="utf-8") for part in found.group(1).split()]
    whole = _PARTS.sub(lambda _: "".join(parts), text, count=1)
    digest = hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()
    return Script(name, whole, digest, "no-writes" not in whole.partition("\n")[0])


ALL: Final = {path.stem: load(path.stem) for path in sorted(_FOLDER.glob("*.lua"))}
"""Every operation by its name."""
