"""The file behind a configuration: where it is found, and what its keys may be."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Never

from hesape import names
from hesape.errors import ConfigError, NameInvalidError

FILE: Final = "hesape.toml"
PYPROJECT: Final = "pyproject.toml"
DEFAULT_URL: Final = "sqlite:///hesape.db"
"""The connection of an application that configures none."""
WORKER: Final[Mapping[str, tuple[type, ...]]] = MappingProxyType(
    {
        "queue": (str,),
        "name": (str,),
        "concurrency": (int,),
        "processes": (int,),
        "max_jobs": (int,),
        "tries": (int,),
        "memory": (int,),
        "prefetch": (int,),
        "max_time": (int, float),
        "timeout": (int, float),
        "lease": (int, float),
        "sleep": (int, float),
        "rest": (int, float),
        "grace": (int, float),
    }
)
"""What `[worker]` may set, and of which type; durations are seconds."""
_KINDS: Final = MappingProxyType(
    {str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a table"}
)


class Table:
    """The hesape table of a file, with the words for what is wrong in it."""

    def __init__(self, content: Mapping[str, Any], file: Path | None, prefix: str = "") -> None:
        """Hold `content`, whose keys are under `prefix` in `file`; `None`: there is no file."""
        self.content = content
        self.file = file
        self.prefix = prefix

    def fault(self, key: str, problem: str) -> Never:
        """Raise `ConfigError` with the file and the key."""
        raise ConfigError(f"{self.file}: {self.prefix}{key}: {problem}")

    def table(self, key: str) -> Mapping[str, Any]:
        """A table inside, empty when it isn't there."""
        found: Mapping[str, Any] = self.content.get(key, {})
        self.typed(key, found, dict)
        return found

    def typed(self, key: str, value: object, *types: type) -> None:
        """Refuse a value of another type; true and false are no numbers."""
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            expected = " or ".join(_KINDS[kind] for kind in types)
            self.fault(key, f"expected {expected}, found {_KINDS.get(type(value), type(value).__name__)}")

    def only(self, keys: Iterable[str], allowed: Iterable[str], under: str = "") -> None:
        """Refuse a key that isn't allowed, naming the nearest that is."""
        known = list(allowed)
        for key in keys:
            if key not in known:
                hint = nearest(key, known) or f"; expected one of {', '.join(known)}"
                self.fault(f"{under}{key}", f"unknown key{hint}")

    def default(self, tables: Mapping[str, object]) -> str:
        """The default connection: the one named, one called `default`, or the only one; empty when it is open."""
        named: str = self.content.get("default", "")
        if named and named not in tables:
            known = f"{nearest(named, tables)} (configured: {', '.join(tables)})"
            self.fault("default", f"no connection named {named!r}{known}")
        if named or "default" in tables:
            return named or "default"
        return next(iter(tables)) if len(tables) == 1 else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest of `known`, or nothing."""
    found = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def open_file(file: Path) -> Table:
    """The file that somebody named; a folder stands for its hesape.toml."""
    if file.is_dir():
        file /= FILE
    if not file.is_file():
        raise ConfigError(f"{file}: there is no such configuration file")
    if file.name == PYPROJECT:
        return _pyproject(file) or Table({}, file, "tool.hesape.")
    return Table(_read(file), file)


def find(start: Path) -> Table:
    """The nearest hesape.toml from `start` upwards, else the nearest pyproject.toml with `[tool.hesape]`, else none."""
    folders = (start, *start.parents)
    for folder in folders:
        if (folder / FILE).is_file():
            return Table(_read(folder / FILE), folder / FILE)
    for folder in folders:
        if (folder / PYPROJECT).is_file() and (found := _pyproject(folder / PYPROJECT)):
            return found
    return Table({}, None)


def check(found: Table) -> None:
    """Refuse unknown keys and wrong types, wherever they are."""
    found.only(found.content, ("default", "connections", "signing", "worker"))
    found.typed("default", found.content.get("default", ""), str)
    for name, table in found.table("connections").items():
        _check_connection(found, name, table)
    for key, value in found.table("worker").items():
        found.only([key], WORKER, "worker.")
        found.typed(f"worker.{key}", value, *WORKER[key])
    if signing := found.table("signing"):
        _check_signing(found, signing)


def _check_connection(found: Table, name: str, table: Any) -> None:
    key = f"connections.{name}"
    try:
        names.check_connection(name)
    except NameInvalidError as error:
        found.fault(key, str(error))
    found.typed(key, table, dict)
    for entry in ("driver", "url"):
        found.typed(f"{key}.{entry}", table.get(entry, ""), str)
    if not table.get("driver") and not table.get("url"):
        hints = (nearest(entry, ("driver", "url")) for entry in table)
        hint = next(filter(None, hints), f"; set url, such as {DEFAULT_URL!r}")
        found.fault(key, f"neither url nor driver is set{hint}")


def _check_signing(found: Table, signing: Mapping[str, Any]) -> None:
    found.only(signing, ("keys", "sealing", "accept_unsealed"), "signing.")
    keys = signing.get("keys", {})
    found.typed("signing.keys", keys, dict)
    found.typed("signing.sealing", signing.get("sealing", ""), str)
    found.typed("signing.accept_unsealed", signing.get("accept_unsealed", False), bool)
    if not keys:
        found.fault("signing.keys", 'no key is set; expected ids and secrets, such as { k1 = "${HESAPE_KEY}" }')
    for key_id, secret in keys.items():
        found.typed(f"signing.keys.{key_id}", secret, str)
    if "sealing" not in signing and len(keys) > 1:
        found.fault("signing.sealing", f'not set; name the key that seals ({", ".join(keys)}), or "" to seal nothing')


def _pyproject(file: Path) -> Table | None:
    tool = _read(file).get("tool", {})
    if not isinstance(tool, dict) or "hesape" not in tool:
        return None
    return Table(Table(tool, file, "tool.").table("hesape"), file, "tool.hesape.")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: can't be read: {error}") from error
