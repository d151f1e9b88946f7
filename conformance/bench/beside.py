"""Ours and other libraries side by side: the same job, the same slots, the same server, in turns.

Each library is driven by a script in `peers`, in an environment of its own (`.venv-peers`), and so are we: one producer
that calls what the library's users call, and the worker that they start. What is lost or runs twice is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import redis

from hesape_conformance.bench.figures import percentile
from hesape_conformance.bench.goals import OURS
from hesape_conformance.bench.stamps import FILE_VARIABLE, SLOTS_VARIABLE
from hesape_conformance.bench.working import kill, stamped
from hesape_conformance.harness import Harness
from hesape_conformance.installed import find_harness

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = {
    "postgres": ("hesape", "pgqueuer", "procrastinate", "huey"),
    "sqlite": ("hesape", "litequeue", "huey"),
    "redis": ("hesape", "taskiq", "dramatiq", "saq", "huey"),
    "mysql": ("hesape", "huey"),
}
FIGURES = ("push", "bulk", "drain", "p50", "p99")
STALL_S = 30


def options(parser: argparse.ArgumentParser) -> None:
    """How much is measured."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=50, help="jobs pushed to an idle worker")
    parser.add_argument("--slots", type=int, default=10, help="jobs at the same time in the one worker process")
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers/bin/python", help="of the environment")


def run(arguments: argparse.Namespace, _further: list[str]) -> int:
    """Measure the stores; 1 if anything was lost or failed, by whomever, or ran twice with us."""
    arguments.results.mkdir(exist_ok=True)
    sound = True
    for store in arguments.stores or PEERS:
        harness = find_harness(store)()
        libraries = [_Library(name, arguments) for name in PEERS[store]]
        try:
            harness.start()
            for number in range(arguments.rounds):
                for library in (*libraries[number:], *libraries[:number]):  # nobody is always first
                    print(f"{store}, round {number + 1} of {arguments.rounds}: {library.name}", file=sys.stderr)
                    library.measure(harness)
                _save(arguments, store, harness, libraries)
        finally:
            harness.stop()
        print(f"\n{store} on {' '.join(harness.server())}\n{table(_report(arguments, store, harness, libraries))}\n")
        sound = sound and all(library.sound for library in libraries)
    return 0 if sound else 1


def _report(arguments: argparse.Namespace, store: str, harness: Harness, libraries: list[_Library]) -> dict[str, Any]:
    return {
        "store": store,
        "server": " ".join(harness.server()),
        "size": {name: getattr(arguments, name) for name in ("rounds", "jobs", "samples", "slots")},
        "libraries": [library.to_dict() for library in libraries],
    }


def _save(arguments: argparse.Namespace, store: str, harness: Harness, libraries: list[_Library]) -> None:
    text = json.dumps(_report(arguments, store, harness, libraries), indent=1)
    (arguments.results / f"peers-{store}.json").write_text(text + "\n", encoding="utf-8")


HEAD = (
    "library",
    "push/s",
    "bulk/s",
    "drain/s",
    "p50 ms",
    "p99 ms",
    "lost",
    "doubled",
    "acknowledges",
    "durable",
    "keeps",
)


def rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    """The medians, losses and doubles of every library, and what a reader must know of it."""
    found: list[tuple[str, ...]] = [HEAD]
    for library in report["libraries"]:
        facts = library["facts"]
        name, versions = library["name"], facts.get("versions", {})
        cells = [f"{name} {next(iter(versions.values()), '')}".strip()]
        for key in FIGURES:
            values = library["figures"][key]
            digits = 1 if key in {"p50", "p99"} else 0
            cells.append(f"{statistics.median(values):,.{digits}f}" if values else "-")
        cells += [f"{library['lost']:,}", f"{library['doubled']:,}"]
        found.append((*cells, *(facts.get(key, "") for key in ("acknowledges", "durable", "keeps"))))
    return found


def table(report: dict[str, Any]) -> str:
    """The same for people, with what went wrong."""
    lines = rows(report)
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    text = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(
        [*text, *(f"! {library['name']}: {it}" for library in report["libraries"] for it in library["problems"])]
    )


class _Library:
    """One library on one store, and what was found."""

    def __init__(self, name: str, arguments: argparse.Namespace) -> None:
        self.name = name
        self.how = arguments
        self.python = sys.executable if name == OURS else str(arguments.python)
        self.figures: dict[str, list[float]] = {key: [] for key in FIGURES}
        self.counted = {"lost": 0, "doubled": 0}
        self.facts: dict[str, Any] = {}
        self.problems: list[str] = []

    @property
    def sound(self) -> bool:
        """Whether all was measured and nothing lost; that others run a job twice is for the table to say."""
        doubled = self.name == OURS and self.counted["doubled"]
        return not (self.problems or self.counted["lost"] or doubled)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "facts": self.facts,
            "figures": self.figures,
            **self.counted,
            "problems": self.problems,
        }

    def measure(self, harness: Harness) -> None:
        """One round. What fails is noted: the others' figures are wanted."""
        try:
            with tempfile.TemporaryDirectory(prefix=f"hesape-peer-{self.name}-") as folder:
                self._measure(harness, Path(folder))
        except (OSError, subprocess.SubprocessError, ValueError, TimeoutError) as error:
            detail = getattr(error, "stderr", "") or ""
            self.problems.append(f"{type(error).__name__}: {error} {detail[-300:]}".strip())
            print(self.problems[-1], file=sys.stderr)

    def _measure(self, harness: Harness, folder: Path) -> None:
        n, samples = self.how.jobs, self.how.samples
        with stamped(folder, n + samples) as stamps:
            environment = self._environment(harness, folder)
            self.facts = self._ask(environment, folder, "facts")
            self._ask(environment, folder, "prepare")
            self.figures["push"].append(self._ask(environment, folder, "push", n))
            with self._worker(environment, folder) as worker:
                at, since = 0, time.monotonic()
                while not stamps.reached(n) and worker.poll() is None and time.monotonic() - since < STALL_S:
                    if (found := stamps.seen().ran if time.monotonic() - since > 5 else at) != at:
                        at, since = found, time.monotonic()
                    time.sleep(0.05)
                asked = n
                if stamps.reached(n):
                    self.figures["drain"].append(stamps.seen().per_s)
                    asked += samples
                    time.sleep(1)
                    taken = sorted(self._ask(environment, folder, "latency", n, samples))
                    self.figures["p50"].append(statistics.median(taken))
                    self.figures["p99"].append(percentile(taken, 0.99))
            seen = stamps.seen()
            self.counted["lost"] += asked - seen.ran
            self.counted["doubled"] += seen.doubled
            environment = self._environment(harness, folder)
            self._ask(environment, folder, "prepare")
            if (bulk := self._ask(environment, folder, "bulk", n)) is not None:
                self.figures["bulk"].append(bulk)

    def _environment(self, harness: Harness, folder: Path) -> dict[str, str]:
        settings = harness.settings("peer")
        options = {name: value for name, value in settings.options.items() if name not in {"schema", "prefix"}}
        return os.environ | {
            "PEER_URL": FRESH[harness.driver](settings.url, folder),
            "PEER_OPTIONS": json.dumps(options),
            "PEER_SLOTS": str(self.how.slots),
            FILE_VARIABLE: str(folder / "stamps"),
            SLOTS_VARIABLE: str(self.how.jobs + self.how.samples),
            "PYTHONPATH": os.pathsep.join([str(HERE / "peers"), str(ROOT / "conformance/src")]),
        }

    def _command(self, command: str, *numbers: int) -> list[str]:
        return [self.python, str(HERE / "peers/driving.py"), f"with_{self.name}", command, *map(str, numbers)]

    def _ask(self, environment: dict[str, str], folder: Path, command: str, *numbers: int) -> Any:
        words = self._command(command, *numbers)
        done = subprocess.run(
            words, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=900
        )
        return json.loads(done.stdout.splitlines()[-1])

    @contextlib.contextmanager
    def _worker(self, environment: dict[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        with (folder / "worker.log").open("wb") as log:
            words = self._command("work", self.how.slots)
            worker = subprocess.Popen(
                words, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield worker
            if worker.poll() is not None:
                said = (folder / "worker.log").read_text(errors="replace")[-500:]
                message = f"the worker ended with code {worker.returncode}: {said}"
                raise ValueError(message)
        finally:
            worker.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=10)
            kill(worker)


# An empty place of its own for each library, on the server of the store.


def _postgres(url: str, _folder: Path) -> str:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("DROP DATABASE IF EXISTS peer WITH (FORCE)")
        conn.execute("CREATE DATABASE peer")
    return urlsplit(url)._replace(path="/peer").geturl()


def _mysql(url: str, _folder: Path) -> str:
    at = urlsplit(url)
    assert at.hostname is not None
    with (
        pymysql.connect(host=at.hostname, port=at.port or 3306, user=at.username, password=at.password or "") as conn,
        conn.cursor() as cursor,
    ):
        cursor.execute("DROP DATABASE IF EXISTS test_peer")
        cursor.execute("CREATE DATABASE test_peer CHARACTER SET utf8mb4")
    return at._replace(path="/test_peer").geturl()


def _redis(url: str, _folder: Path) -> str:
    own = urlsplit(url)._replace(path="/9").geturl()
    with contextlib.closing(redis.Redis.from_url(own)) as client:
        client.flushdb()
    return own


def _sqlite(_url: str, folder: Path) -> str:
    return f"sqlite:///{tempfile.mkdtemp(dir=folder)}/peer.db"


FRESH = {"postgres": _postgres, "mysql": _mysql, "redis": _redis, "sqlite": _sqlite}
