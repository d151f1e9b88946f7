"""What every case starts from: a store of each kind, an application in a folder, and workers as users start them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hesape
from hesape.jobs import Job
from hesape.queue import Queue
from hesape_conformance.harness import Harness
from hesape_conformance.installed import find_harness

HESAPE = (sys.executable, "-c", "import sys; from hesape.cli import main; sys.exit(main())")
SERVERS = ("mysql", "postgres", "redis")
SHARED = ("sqlite", *SERVERS)
"""Stores that several processes can use."""
ALL = ("memory", *SHARED)
APP = Path(__file__).with_name("works.py.txt").read_text(encoding="utf-8")
_numbers = itertools.count(1)


class Site:
    """A fresh namespace of a store, and a folder with an application over it."""

    def __init__(self, harness: Harness, folder: Path) -> None:
        """Write the application and its configuration; the store's tables are made."""
        self.harness, self.folder = harness, folder
        self.namespace = f"case{next(_numbers)}"
        self.queue = Queue(harness.open(self.namespace), name="main")
        self.queue.driver.migrate()
        self.workers: list[subprocess.Popen[bytes]] = []
        (folder / "works.py").write_text(APP)
        self.configure()

    def configure(self, endpoint: tuple[str, int] | None = None, **options: object) -> None:
        """Write hesape.toml, perhaps with the address of a relay."""
        settings = self.harness.settings(self.namespace, endpoint=endpoint)
        lines = ["[connections.main]", f"driver = {json.dumps(settings.driver)}", f"url = {json.dumps(settings.url)}"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in {**settings.options, **options}.items()]
        (self.folder / "hesape.toml").write_text("\n".join(lines if settings.url else lines[:2] + lines[3:]) + "\n")

    def push(self, name: str, *, tenant: str = "acme", queue: str = "default", **payload: object) -> Job:
        """Push one job of the application's."""
        grant = hesape.system_grant(name, tenant)
        return self.queue.push(grant, Job.new(grant, name, payload, queue=queue))

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start `hesape work`."""
        command = [*HESAPE, "work", "--app", "works:app", "--sleep", "0.2", *options]
        with (self.folder / "err.txt").open("ab") as err:
            worker = subprocess.Popen(
                command, cwd=self.folder, stdout=err, stderr=err, stdin=subprocess.DEVNULL, process_group=0
            )
        self.workers.append(worker)
        return worker

    def command(self, *words: str) -> subprocess.Popen[str]:
        """Start another command."""
        return subprocess.Popen(
            [*HESAPE, *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def notes(self, what: str = "") -> list[list[str]]:
        """What the handlers noted: a word, a number, the attempt, the process, the tenant."""
        path = self.folder / "notes.txt"
        found = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [line for line in found if not what or line[0] == what]

    def noted(self, what: str, number: int, *, within_s: float = 30) -> list[str]:
        """Wait for a note, and return it."""
        from hesape_conformance.expect import eventually  # not before the suite, which has it rewritten

        def find() -> list[str]:
            return next((line for line in self.notes(what) if line[1] == str(number)), [])

        return eventually(find, f"{what} {number} is noted\n{self.log()}", within_s=within_s, every_s=0.05)

    def log(self) -> str:
        """What the workers logged."""
        path = self.folder / "err.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self) -> list[int]:
        """Ask the workers to stop; their exit codes."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        return [worker.wait(40) for worker in self.workers]

    def close(self) -> None:
        """Kill what is left of the workers, and drop the namespace."""
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        self.queue.driver.close()
        self.harness.drop(self.namespace)


@pytest.fixture(scope="session")
def harnesses() -> Iterator[dict[str, Harness]]:
    """Those in use; private servers, so that they may be killed."""
    found: dict[str, Harness] = {}
    yield found
    for harness in found.values():
        harness.stop()


@pytest.fixture
def harness(request: pytest.FixtureRequest, harnesses: dict[str, Harness], monkeypatch: pytest.MonkeyPatch) -> Harness:
    """The harness of the store that the test is parametrized with."""
    name = str(request.param)
    for kind in SERVERS:  # an address of somebody's server isn't ours to kill
        monkeypatch.delenv(f"HESAPE_TEST_{kind.upper()}_URL", raising=False)
    if name not in harnesses:
        harnesses[name] = find_harness(name)()
        harnesses[name].start()
    return harnesses[name]


@pytest.fixture
def site(harness: Harness, tmp_path: Path) -> Iterator[Site]:
    """A site on that store."""
    site = Site(harness, tmp_path)
    yield site
    site.close()
