"""A worker process needs no more after a hundred thousand jobs than after ten thousand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import hesape
from hesape.jobs import Job
from hesape.queue import Queue

COMMAND = "import sys; from hesape.cli import main; sys.exit(main())"
MIB = 1024 * 1024
JOBS = """
import hesape

app = hesape.App()

@app.handler("plain")
def plain(job: hesape.Job, number: int) -> None: ...

@app.handler("coroutine", backoff=0, tries=2)
async def coroutine(job: hesape.Job, number: int) -> None:
    if number % 10 == 0 and job.attempts == 1:
        raise ValueError(number)
"""


class Needs(NamedTuple):
    resident: int
    handles: int
    threads: int


def needs(pid: int) -> Needs:
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Needs(resident, len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir())))


def pass_through(queue: Queue, name: str, jobs: int) -> None:
    grant = hesape.system_grant(name, "acme")
    for start in range(0, jobs, 5_000):
        queue.bulk(grant, [Job.new(grant, name, {"number": start + one}) for one in range(min(5_000, jobs - start))])
    deadline = time.monotonic() + 90
    while queue.counts().size:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_memory_handles_and_threads_are_flat_over_a_hundred_thousand_jobs(tmp_path: Path) -> None:
    (tmp_path / "flat.py").write_text(JOBS)
    command = [sys.executable, "-c", COMMAND, "work", "--app", "flat:app", "--sleep", "0.1"]
    with hesape.connect(f"sqlite:///{tmp_path}/hesape.db") as queue, (tmp_path / "log.txt").open("w") as log:
        queue.counts()
        with subprocess.Popen(command, cwd=tmp_path, stderr=log, process_group=0) as supervisor:
            try:
                pass_through(queue, "coroutine", 1_000)
                pass_through(queue, "plain", 9_000)
                time.sleep(0.5)  # idle: it waits in the store as it will again
                children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
                pid = int(children[0])
                first, above = needs(pid), needs(supervisor.pid)
                pass_through(queue, "coroutine", 3_000)
                pass_through(queue, "plain", 87_000)
                time.sleep(0.5)
                last, above_last = needs(pid), needs(supervisor.pid)
            finally:
                supervisor.terminate()
        assert queue.counts() == hesape.Counts(0, 0, 0, 0)
    assert last.resident - first.resident <= 2 * MIB, f"{first} then {last}"
    assert above_last.resident - above.resident <= 2 * MIB, f"{above} then {above_last}"
    assert last[1:] == first[1:], f"{first} then {last}"
    assert above_last[1:] == above[1:], f"{above} then {above_last}"
