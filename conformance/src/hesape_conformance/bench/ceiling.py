"""The ceiling: what a plain script reaches on the same store, with the same durability, doing the same work.

A script is a Python file with a class `Ceiling`. It may know more about its store, by functions that all take the
settings of the driver's own connection:

    durability(settings)        # a line about what the store syncs, for the report
    copies(settings, n)         # copy the one job that is stored n times, by statements of its own
    snapshot(settings)          # a block during which a snapshot of the store is held
    writes(settings)            # how many write transactions there were, of a store without a server
"""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import uuid_utils

from hesape.config import ConnectionSettings
from hesape_conformance.bench import figures

_dumps = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Ceiling(Protocol):
    """A plain script on one store: the same envelope encoded, stored, claimed under a token, decoded, deleted."""

    def prepare(self) -> None:
        """Make an empty table or key space of its own."""

    def push(self, payloads: Sequence[object]) -> None:
        """Store one job a call and a commit."""

    def bulk(self, payloads: Sequence[object]) -> None:
        """Store all of them in batches of a thousand, by the fastest way that the store has."""

    def drain(self) -> int:
        """Claim 50 under a token, decode, delete, until nothing is left; how many."""

    def close(self) -> None:
        """Remove what was made and close."""


class Script:
    """A file with a `Ceiling`, and what else it knows."""

    def __init__(self, path: Path) -> None:
        """Load the file at `path`."""
        spec = importlib.util.spec_from_file_location(f"ceiling_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._open: Callable[[ConnectionSettings], Ceiling] = module.Ceiling
        self.path = path
        self.durability: Callable[[ConnectionSettings], str] | None = _offered(module, "durability")
        self.copies: Callable[[ConnectionSettings, int], None] | None = _offered(module, "copies")
        self.snapshot: Callable[[ConnectionSettings], AbstractContextManager[None]] | None = _offered(
            module, "snapshot"
        )
        self.writes: Callable[[ConnectionSettings], int] | None = _offered(module, "writes")

    def open(self, settings: ConnectionSettings) -> AbstractContextManager[Ceiling]:
        """The plain script on the driver's server, in an empty table of its own."""
        plain = self._open(settings)
        plain.prepare()
        return closing(plain)

    def source(self) -> str:
        """The script itself, printed with the report, and what it encodes with."""
        work = f"{inspect.getsource(encode)}\n\n{inspect.getsource(decode)}"
        return f"{self.path.read_text()}\n\n# {self.path.name} encodes and decodes with:\n\n{work}"


def _offered(module: ModuleType, name: str) -> Any:
    return getattr(module, name, None)


def push(plain: Ceiling, n: int) -> float:
    """Jobs a second, one call each."""
    plain.push(figures.payloads(20))
    wanted = figures.payloads(n)
    return n / figures.timed(lambda: plain.push(wanted))


def bulk(plain: Ceiling, n: int) -> float:
    """Jobs a second, a thousand a call."""
    wanted = figures.payloads(n)
    return n / figures.timed(lambda: plain.bulk(wanted))


def drain(plain: Ceiling, n: int) -> float:
    """Jobs a second, fifty a claim."""
    plain.bulk(figures.payloads(n))
    drained = []
    seconds = figures.timed(lambda: drained.append(plain.drain()))
    if drained != [n]:
        message = f"the plain script drained {drained[0]} of {n} jobs"
        raise RuntimeError(message)
    return n / seconds


def encode(payload: object) -> tuple[str, bytes]:
    """An id and an envelope of the same fields as a driver's, by the plainest code."""
    job_id = str(uuid_utils.uuid7())
    header = _dumps([job_id, "acme", "bench.noop", "system", "bench.noop", "", "default", {}])
    return job_id, b"hesape1 - -\n" + header.encode() + b"\n" + _dumps(payload).encode()


def decode(envelope: bytes) -> tuple[list[object], bytes]:
    """The header's fields and the payload's bytes."""
    _, header, payload = envelope.split(b"\n", 2)
    return json.loads(header), payload
