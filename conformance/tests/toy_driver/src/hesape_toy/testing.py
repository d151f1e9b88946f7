"""The toy driver's harness for the conformance suite."""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from hesape.config import ConnectionSettings
from hesape_conformance.harness import Harness, RawRow


class ToyRaw:
    """A journal, read and changed without the driver: of each thing the last line that names it counts."""

    def __init__(self, path: Path) -> None:
        """Look into the file at `path`, which needn't be there yet."""
        self._path = path

    def rows(self) -> list[RawRow]:
        """Every stored job."""
        return [
            RawRow(
                id=job["id"],
                envelope=job["envelope"].encode("latin-1"),
                tenant=job["tenant"],
                name=job["name"],
                queue=job["queue"],
                state=job["state"],
                priority=job["priority"],
                attempts=job["attempts"],
                lapses=job["lapses"],
                exceptions=job["exceptions"],
                last_error=job["last_error"],
            )
            for job in self._table("jobs").values()
        ]

    def overwrite(
        self, job_id: str, field: Literal["envelope", "tenant", "name", "queue", "attempts"], value: object
    ) -> None:
        """Set one field of a job, by a line of one's own."""
        new = value.decode("latin-1") if isinstance(value, bytes) else value
        with locked(self._path):
            self.append({"jobs": {job_id: {**self._table("jobs")[job_id], field: new}}})

    def entries(self) -> int:
        """How many locks, counters, flags, unique keys, workers and paused queues are kept."""
        return sum(len(self._table(name)) for name in ("entries", "workers", "paused"))

    def append(self, line: dict[str, Any]) -> None:
        """Write a line; the caller holds the lock."""
        with self._path.open("a", encoding="ascii") as file:
            file.write(json.dumps(line) + "\n")

    def _table(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        text = self._path.read_text(encoding="ascii") if self._path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():
            found.update(json.loads(line).get(name, {}))
        return {key: value for key, value in found.items() if value is not None}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that each call of the driver holds."""
    with Path(f"{path}.lock").open("a", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class ToyHarness(Harness):
    """A namespace is a file in a folder of the run's own."""

    driver = "toy"

    def start(self) -> None:
        """Make the folder."""
        self._folder = Path(tempfile.mkdtemp(prefix="hesape-toy-"))

    def stop(self) -> None:
        """Remove it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def server(self) -> tuple[str, str]:
        """There is none but the driver."""
        return "a journal of hesape-toy", version("hesape-toy")

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """The namespace's file."""
        return ConnectionSettings(
            name="suite", driver=self.driver, url=f"toy:///{self._path(namespace)}", options={"timeout": 2.0}
        )

    def raw(self, namespace: str) -> ToyRaw:
        """The file itself."""
        return ToyRaw(self._path(namespace))

    def drop(self, namespace: str) -> None:
        """Remove the file and what lies beside it."""
        for suffix in ("", ".lock", ".new"):
            Path(f"{self._path(namespace)}{suffix}").unlink(missing_ok=True)

    @contextmanager
    def outage(self, namespace: str) -> Iterator[None]:
        """Somebody else holds the file's lock."""
        with locked(self._path(namespace)):
            yield

    @contextmanager
    def full(self, namespace: str) -> Iterator[None]:
        """The journal's quota is used up."""
        path, raw = self._path(namespace), self.raw(namespace)
        with locked(path):
            raw.append({"quota": path.stat().st_size})
        try:
            yield
        finally:
            with locked(path):
                raw.append({"quota": None})

    def _path(self, namespace: str) -> Path:
        return self._folder / f"{namespace}.toy"


harness = ToyHarness
