"""A handler that forks, and a child that returns into the worker: the job stays its parent's."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import hesape
from hesape.jobs import Job
from hesape.records import Counts

JOBS = """
import os
from pathlib import Path
import hesape

app = hesape.App()

def fork(fails):
    child = os.fork() or os.getpid()
    with open(Path(__file__).parent / "forked.txt", "a") as file:
        file.write(f"{child}\\n")
    if fails:
        raise ValueError

@app.handler("thread", tries=1)
def in_thread(fails: bool) -> None:
    fork(fails)

@app.handler("coroutine", tries=1)
async def in_coroutine(fails: bool) -> None:
    fork(fails)
"""
WORK = ("-c", "import sys; from hesape.cli import main; sys.exit(main())", "work", "--app", "forks:app")


def ended(pid: str) -> bool:
    """Whether a process is gone, or dead and only its parent hasn't asked for its end."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("outcome", ["returns", "raises"])
@pytest.mark.parametrize("name", ["thread", "coroutine"])
def test_the_child_settles_nothing_and_ends(tmp_path: Path, name: str, outcome: str) -> None:
    (tmp_path / "forks.py").write_text(JOBS)
    (tmp_path / "hesape.toml").write_text('[connections.main]\nurl = "sqlite:///jobs.db"\n')
    grant = hesape.system_grant(name, "acme")
    with hesape.connect(f"sqlite:///{tmp_path}/jobs.db") as queue:
        queue.push(grant, Job.new(grant, name, {"fails": outcome == "raises"}))
        command = [sys.executable, *WORK, "--stop-when-empty"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
        assert queue.counts() == Counts(0, 0, 0, failed=int(outcome == "raises"))
    forked = (tmp_path / "forked.txt").read_text().split()
    assert len(forked) == 2
    deadline = time.monotonic() + 10
    while not all(ended(pid) for pid in forked):
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.01)
    assert done.stderr.count("its handler forked, and the child returned") == 1
    assert "lost its lease" not in done.stderr
