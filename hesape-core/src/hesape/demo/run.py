"""Runs the demo: pushes, starts `hesape work`, kills one of its processes, waits until everything is done."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import attrs

import hesape
from hesape import config
from hesape.config import CONNECTION_VARIABLE, FILE_VARIABLE
from hesape.config_file import FILE
from hesape.demo import ledger, plan
from hesape.demo.checks import Check, judge
from hesape.demo.ledger import Entry
from hesape.demo.plan import Item

LOG: Final = "worker.log"
PATIENCE_S: Final = 20.0
"""How long the workers get for everything; without recovery a killed process's job takes far longer."""
_LOOK_S: Final = 0.02
_COMMAND: Final = "import sys; from hesape.cli import main; sys.exit(main())"
_PROCESSES: Final = 2
_CONFIGURATION: Final = """
[connections.main]
url = "sqlite:///{file}"
[signing]
keys = {{ k1 = "{key}" }}
"""


@attrs.frozen(kw_only=True)
class Outcome:
    """What the demo did and what the store said in the end."""

    items: Sequence[Item]
    entries: Sequence[Entry]
    killed: Sequence[tuple[int, str]]
    checks: Sequence[Check]
    took_s: float

    @property
    def ok(self) -> bool:
        """Whether the store bears everything out."""
        return all(check.ok for check in self.checks)


class Watching:
    """What the demo tells while it runs. This one tells nothing."""

    def say(self, line: str) -> None:
        """Something happened."""

    def progress(self, done: int, total: int) -> None:
        """So many jobs are over."""


def run(folder: Path, files: Sequence[Path], watching: Watching) -> Outcome:
    """Run the demo over `files`, with its store in `folder`."""
    began = monotonic()
    (folder / FILE).write_text(_CONFIGURATION.format(file=ledger.FILE, key=secrets.token_hex(32)), encoding="utf-8")
    app = hesape.App(config.load(folder, environ={}))
    try:
        queue = app.connection()
        queue.driver.migrate()
        ledger.create(folder)
        items = plan.push_all(queue, folder, files)
        watching.say(f"pushed {len(files)} files as jobs of {' and '.join(plan.TENANTS)}, and tried four bad ones")
        with _workers(folder) as workers:
            watching.say(f"started hesape work with {_PROCESSES} processes")
            killed = _watch(folder, items, watching, lambda: workers.poll() is None)
    finally:
        app.close()
    entries = ledger.summary(folder)
    return Outcome(
        items=items,
        entries=entries,
        killed=killed,
        checks=judge(items, entries, killed),
        took_s=monotonic() - began,
    )


@contextlib.contextmanager
def _workers(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`hesape work` as anybody would start it, its log beside the store."""
    options = ["--app", "hesape.demo.jobs:app", "--concurrency", str(plan.SLOTS // _PROCESSES)]
    options += ["--processes", str(_PROCESSES), "--sleep", "0.2", "--prefetch", "0", "--grace", "2"]
    with (folder / LOG).open("wb") as log:
        workers = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "work", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment(folder),
            process_group=0,
        )
        try:
            yield workers
        finally:
            workers.terminate()
            try:
                workers.wait(10)
            except subprocess.TimeoutExpired:
                workers.kill()
                workers.wait()


def _environment(folder: Path) -> dict[str, str]:
    """The caller's, but for what points hesape elsewhere."""
    others = {name: value for name, value in os.environ.items() if name not in {CONNECTION_VARIABLE, FILE_VARIABLE}}
    return {**others, FILE_VARIABLE: str(folder / FILE)}


def _watch(folder: Path, items: Sequence[Item], watching: Watching, alive: Callable[[], bool]) -> list[tuple[int, str]]:
    """Watch the store until nothing is left to do; kill a process in the middle of a job."""
    until = monotonic() + PATIENCE_S
    total = sum(item.fate in {"counted", "parked", "tampered"} for item in items)
    killed: list[tuple[int, str]] = []
    while monotonic() < until and alive():
        entries = ledger.summary(folder)
        over = sum(entry.state in {"done", "failed"} for entry in entries)
        watching.progress(over, total)
        if over == len(entries):
            break
        if not _was_hit(entries, killed):
            victim = _victim(entries, items, {process for process, _ in killed})
            if victim is not None:
                killed.append(victim)
                _kill(victim, items, watching)
        sleep(_LOOK_S)
    return killed


def _victim(entries: Sequence[Entry], items: Sequence[Item], dead: set[int]) -> tuple[int, str] | None:
    """A process that is in the middle of a file, and the job."""
    files = {item.job for item in items if item.fate == "counted" and not item.stumbles}
    for entry in entries:
        if entry.state == "running" and entry.job in files and entry.attempt == 1 == len(entry.starts):
            process = entry.starts[0]
            if process not in dead:
                return process, entry.job
    return None


def _was_hit(entries: Sequence[Entry], killed: Sequence[tuple[int, str]]) -> bool:
    """Whether the last kill hit a job: its process didn't just manage to finish it."""
    if not killed:
        return False
    process, job = killed[-1]
    return all(entry.process != process for entry in entries if entry.job == job)


def _kill(victim: tuple[int, str], items: Sequence[Item], watching: Watching) -> None:
    process, job = victim
    name = next(item.file for item in items if item.job == job)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    watching.say(f"killed process {process} with -9 in the middle of {name}")
