"""The ceiling: what a plain script reaches on the same store, with the same durability, doing the same work."""

from __future__ import annotations

import importlib.util
import inspect
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

import uuid_utils

from hesape.config import ConnectionSettings

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


def load(path: Path, settings: ConnectionSettings) -> Ceiling:
    """The `Ceiling` class of a Python file, opened with the settings of the driver's own connection."""
    spec = importlib.util.spec_from_file_location(f"ceiling_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Ceiling", module.Ceiling(settings))


def source(path: Path) -> str:
    """The script itself, printed with the report, and what it encodes with."""
    work = f"{inspect.getsource(encode)}\n{inspect.getsource(decode)}"
    return f"{path.read_text()}\n\n# {path.name} encodes and decodes with:\n{work}"


def encode(payload: object) -> tuple[str, bytes]:
    """An id and an envelope of the same fields as a driver's, by the plainest code."""
    job_id = str(uuid_utils.uuid7())
    header = _dumps([job_id, "acme", "bench.noop", "system", "bench.noop", "", "default", {}])
    return job_id, b"hesape1 - -\n" + header.encode() + b"\n" + _dumps(payload).encode()


def decode(envelope: bytes) -> tuple[list[object], bytes]:
    """The header's fields and the payload's bytes."""
    _, header, payload = envelope.split(b"\n", 2)
    return json.loads(header), payload
