"""Ends what a private server left behind, also when the process that started the server was killed.

Run as a program it waits for the end of its standard input, which comes however its starter ends, then kills every
process that works inside the folder and removes the folder. It imports the standard library alone, to start quickly.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

GONE_WITHIN_S = 20.0


def processes_in(folder: Path) -> set[int]:
    """The ids of the processes whose working directory is the folder or lies below it.

    Neither process groups nor parents find them all: a server's children make sessions of their own, and lose their
    parent with it.
    """
    found = set()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            where = Path(os.readlink(f"/proc/{entry.name}/cwd"))  # noqa: PTH115 - Path.readlink makes a second system call
        except OSError:
            continue  # ended meanwhile, a zombie, or somebody else's
        if where == folder or folder in where.parents:
            found.add(int(entry.name))
    return found - {os.getpid()}


def kill_all_in(folder: Path) -> None:
    """Send SIGKILL to every process that works inside the folder, until none is left.

    Raises `TimeoutError` when one outlives that for 20 seconds.
    """
    deadline = time.monotonic() + GONE_WITHIN_S
    while alive := processes_in(folder):
        if time.monotonic() > deadline:
            message = f"processes {sorted(alive)} in {folder} outlived SIGKILL for {GONE_WITHIN_S:.0f} s"
            raise TimeoutError(message)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def main(folder: Path) -> None:
    """Wait for the end of standard input, then leave neither processes nor files of the folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    try:
        kill_all_in(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
