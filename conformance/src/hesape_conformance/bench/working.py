"""`hesape work` as users start it, on a store that is measured, and what its processes take."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hesape.config import ConnectionSettings
from hesape_conformance.bench.stamps import FILE_VARIABLE, SLOTS_VARIABLE, Stamps

_STOPPED_WITHIN_S = 60


@contextlib.contextmanager
def stamped(folder: Path, slots: int) -> Iterator[Stamps]:
    """Fresh stamps, in a file of the folder."""
    path = folder / "stamps"
    path.unlink(missing_ok=True)
    stamps = Stamps(path, slots)
    try:
        yield stamps
    finally:
        stamps.close()


@contextlib.contextmanager
def worker(
    settings: ConnectionSettings, folder: Path, slots: int, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`hesape work` on a configuration file of its own, ended when the block ends."""
    (folder / "hesape.toml").write_text(_toml(settings))
    environment = os.environ | {FILE_VARIABLE: str(folder / "stamps"), SLOTS_VARIABLE: str(slots)}
    command = [sys.executable, "-m", "hesape", "work", "--app", "hesape_conformance.bench.noop:app", *arguments]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=_STOPPED_WITHIN_S)
            except subprocess.TimeoutExpired:
                kill(process)
                raise


def said(folder: Path) -> str:
    """The last lines of the worker's log."""
    return "\n".join((folder / "worker.log").read_text(errors="replace").splitlines()[-5:])


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a worker with all its children at once, as `kill -9` does."""
    for pid in tree(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def tree(pid: int) -> list[int]:
    """A process and its living descendants; itself alone where /proc isn't there."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += tree(int(child))
    return found


def cpu_s(pid: int) -> float:
    """User and system seconds of a process and its living descendants; 0 where /proc isn't there."""
    return sum(_cpu_s(one) for one in tree(pid))


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """MiB of its own, without files that it maps, that the largest of a process and its descendants has resident."""
    return max(_memory_kib(one) for one in tree(pid)) / 1024


def _memory_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


def _toml(settings: ConnectionSettings) -> str:
    lines = ["[connections.default]", f"driver = {json.dumps(settings.driver)}"]
    if settings.url:
        lines.append(f"url = {json.dumps(settings.url)}")
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings.options.items()]
    return 'default = "default"\n' + "\n".join(lines) + "\n"
