"""`hesape work` as users start it: a supervisor, real worker processes, SQLite, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hesape
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Counts

HESAPE = (sys.executable, "-c", "import sys; from hesape.cli import main; sys.exit(main())")
JOBS = """
import asyncio, multiprocessing, os, re, signal, time
from pathlib import Path
import hesape

app = hesape.App()
here = Path(__file__).parent

def note(text):
    with open(here / "log.txt", "a") as file:
        file.write(text + "\\n")

@app.handler("quick")
def quick(job: hesape.Job, number: int = 0) -> None:
    note(f"quick {number} {job.attempts} {os.getpid()}")

@app.handler("sleep", tries=9)
def sleep(job: hesape.Job, seconds: float, number: int = 0) -> None:
    note(f"sleep {number} {job.attempts} {os.getpid()}")
    time.sleep(seconds)
    note(f"slept {number} {job.attempts} {os.getpid()}")

@app.handler("die", tries=3)
def die(job: hesape.Job) -> None:
    note(f"die 0 {job.attempts} {os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)

@app.handler("die-once", tries=1)
def die_once(job: hesape.Job) -> None:
    note(f"die-once 0 {job.attempts} {os.getpid()}")
    os.kill(os.getpid(), signal.SIGKILL)

@app.handler("spin")
def spin(job: hesape.Job, seconds: float) -> None:
    note(f"spin 0 {job.attempts} {os.getpid()}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
    note(f"spun 0 {job.attempts} {os.getpid()}")

@app.handler("hog", timeout=0.3, tries=2, backoff=0)
def hog(job: hesape.Job) -> None:
    note(f"hog 0 {job.attempts} {os.getpid()}")
    re.match(r"(a+)+$", "a" * 40 + "b")

@app.handler("deaf", timeout=0.3, tries=2, backoff=0)
def deaf(job: hesape.Job) -> None:
    note(f"deaf 0 {job.attempts} {os.getpid()}")
    time.sleep(60)

@app.handler("kill-forks")
def kill_forks(job: hesape.Job) -> None:
    for number in [signal.SIGTERM, signal.SIGUSR1] * 3:
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        os.kill(child.pid, number)
        child.join()
        assert child.exitcode == -number
    note(f"kill-forks 0 {job.attempts} {os.getpid()}")

@app.handler("leak")
def leak(job: hesape.Job) -> None:
    note(f"leak 0 {job.attempts} {os.getpid()}")
    leaks.append(bytearray(20_000_000))

leaks = []
"""


class Works:
    """A folder with an application, and workers over it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "works.py").write_text(JOBS)
        (folder / "hesape.toml").write_text('[connections.main]\nurl = "sqlite:///jobs.db"\n')
        self.queue: Queue = hesape.connect(f"sqlite:///{folder}/jobs.db")
        self.supervisors: list[subprocess.Popen[str]] = []

    def push(self, name: str, *, more: str = "default", **payload: object) -> Job:
        grant = hesape.system_grant(name, "acme")
        return self.queue.push(grant, Job.new(grant, name, payload, queue=more))

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [*HESAPE, "work", "--app", "works:app", "--sleep", "0.1", *options]
        with (self.folder / "err.txt").open("a") as err:
            supervisor = subprocess.Popen(
                command, cwd=self.folder, text=True, stderr=err, process_group=0, stdin=subprocess.DEVNULL
            )
        self.supervisors.append(supervisor)
        return supervisor

    def work(self, *options: str, within: float = 90) -> int:
        return self.start("--stop-when-empty", *options).wait(within)

    def lines(self, what: str = "") -> list[list[str]]:
        log = self.folder / "log.txt"
        found = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in found if line[0] == what or not what]

    def pids(self, what: str) -> list[int]:
        return [int(line[3]) for line in self.lines(what)]

    def said(self) -> str:
        return (self.folder / "err.txt").read_text()

    def until(self, condition: Callable[[], object], within: float = 15.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"it didn't come true in time\n{self.said()}"
            time.sleep(0.01)

    def close(self) -> None:
        for supervisor in self.supervisors:
            if supervisor.poll() is None:
                supervisor.send_signal(signal.SIGCONT)
                supervisor.terminate()
                supervisor.terminate()
        for supervisor in self.supervisors:
            try:
                supervisor.wait(15)
            except subprocess.TimeoutExpired:
                supervisor.kill()
                supervisor.wait()
        for _, _, _, pid in self.lines():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.queue.close()


@pytest.fixture
def works(tmp_path: Path) -> Iterator[Works]:
    works = Works(tmp_path)
    yield works
    works.close()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_works_until_nothing_is_left_and_ends_with_code_0(works: Works) -> None:
    for number in range(300):
        works.push("quick", number=number)
    assert works.work("--processes", "2") == 0
    assert Counter(line[1] for line in works.lines()) == Counter(str(number) for number in range(300))
    assert works.queue.counts() == Counts(0, 0, 0, 0)
    assert works.queue.operator().workers() == []
    assert str(works.folder / "jobs.db") in works.said()


def test_the_jobs_of_a_killed_process_run_elsewhere_at_once(works: Works) -> None:
    for number in range(8):
        works.push("sleep", seconds=2, number=number)
    works.start("--processes", "2", "--concurrency", "8", "--lease", "600")
    works.until(lambda: len(works.lines("sleep")) == 8)
    victim = works.pids("sleep")[0]
    held = {line[1] for line in works.lines("sleep") if int(line[3]) == victim}
    os.kill(victim, signal.SIGKILL)
    killed = time.monotonic()
    works.until(lambda: {line[1] for line in works.lines("sleep") if line[2] == "2"} == held)
    assert time.monotonic() - killed < 5
    works.until(lambda: works.queue.counts().size == 0)
    assert len(works.lines("sleep")) == 8 + len(held)


def test_the_jobs_of_a_killed_supervisor_and_its_process_run_elsewhere_long_before_their_lease_ends(
    works: Works,
) -> None:
    works.push("sleep", seconds=3)
    first = works.start("--lease", "600")
    works.until(lambda: works.lines("sleep"))
    pid = works.pids("sleep")[0]
    first.kill()
    os.kill(pid, signal.SIGKILL)
    first.wait()
    killed = time.monotonic()
    works.start("--lease", "600")
    works.until(lambda: len(works.lines("sleep")) == 2, within=10)
    assert time.monotonic() - killed < 10


def test_a_job_that_kills_its_process_is_parked_after_its_tries_and_costs_no_other_job(works: Works) -> None:
    job = works.push("die")
    for number in range(50):
        works.push("quick", number=number)
    assert works.work() == 0
    assert [line[2] for line in works.lines("die")] == ["1", "2", "3"]
    assert len({line[1] for line in works.lines("quick")}) == 50
    found = works.queue.operator().find(job.id)
    assert "the worker died or the lease ran out" in (found.last_error or "")
    assert works.queue.counts() == Counts(0, 0, 0, 1)


def test_a_job_of_one_try_that_kills_its_process_is_parked_with_the_reason(works: Works) -> None:
    job = works.push("die-once")
    assert works.work() == 0
    assert [line[2] for line in works.lines("die-once")] == ["1"]
    assert "ended without an outcome" in (works.queue.operator().find(job.id).last_error or "")


def test_a_process_whose_supervisor_is_killed_finishes_its_job_once_and_stops(works: Works) -> None:
    works.push("sleep", seconds=3)
    supervisor = works.start("--lease", "3")
    other = works.start("--lease", "3")
    works.until(lambda: works.lines("sleep"))
    pid = works.pids("sleep")[0]
    parent = int(Path(f"/proc/{pid}/stat").read_text().split()[3])
    orphaned = supervisor if supervisor.pid == parent else other
    orphaned.kill()
    orphaned.wait()
    works.until(lambda: gone(pid))
    works.until(lambda: works.queue.counts().size == 0)
    assert len(works.lines("sleep")) == len(works.lines("slept")) == 1


def test_a_busy_handler_keeps_its_lease_and_its_neighbours(works: Works) -> None:
    works.push("spin", seconds=4)
    works.push("sleep", seconds=4)
    works.start("--lease", "1", "--processes", "2")
    works.start("--lease", "1")
    works.until(lambda: works.queue.counts().size == 0)
    assert len(works.lines("spin")) == len(works.lines("spun")) == len(works.lines("slept")) == 1


def test_a_worker_whose_supervisor_stands_still_keeps_even_a_short_lease(works: Works) -> None:
    works.push("sleep", seconds=5)
    supervisor = works.start("--lease", "3")
    works.until(lambda: works.lines("sleep"))
    works.start("--lease", "3", "--queue", "default,other")
    works.push("quick", more="other")
    works.until(lambda: works.lines("quick"))
    supervisor.send_signal(signal.SIGSTOP)
    works.until(lambda: works.lines("slept"))
    supervisor.send_signal(signal.SIGCONT)
    works.until(lambda: works.queue.counts() == Counts(0, 0, 0, 0))
    assert len(works.lines("sleep")) == len(works.lines("slept")) == 1


def test_a_stopped_process_loses_its_job_and_settles_nothing_when_it_goes_on(works: Works) -> None:
    works.push("sleep", seconds=1)
    works.start("--lease", "2")
    works.until(lambda: works.lines("sleep"))
    pid = works.pids("sleep")[0]
    os.kill(pid, signal.SIGSTOP)
    other = works.start("--lease", "2")
    works.until(lambda: len(works.lines("sleep")) == 2)
    assert works.pids("sleep")[1] != pid
    os.kill(pid, signal.SIGCONT)
    works.until(lambda: works.queue.counts() == Counts(0, 0, 0, 0))
    works.until(lambda: "lost its lease" in works.said())
    assert other.poll() is None


def test_a_stop_hands_back_what_never_started_and_waits_for_the_rest(works: Works) -> None:
    for number in range(200):
        works.push("sleep", seconds=2, number=number)
    supervisor = works.start("--prefetch", "196", "--grace", "10")
    works.until(lambda: len(works.lines("sleep")) == 4 and works.queue.counts().reserved == 200)
    supervisor.terminate()
    works.until(lambda: works.queue.counts() == Counts(196, 0, 4, 0), within=1.5)
    assert supervisor.wait(10) == 0
    assert len(works.lines("sleep")) == len(works.lines("slept")) == 4
    back = works.queue.pop(n=200)
    started = {int(line[1]) for line in works.lines("sleep")}
    assert [job.decode()["number"] for job in back] == [number for number in range(200) if number not in started]
    assert {job.attempts for job in back} == {1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_an_idle_worker_stops_within_a_second(works: Works, number: signal.Signals) -> None:
    supervisor = works.start()
    works.until(lambda: works.queue.operator().workers())
    works.push("quick")
    works.until(lambda: works.queue.counts().size == 0)
    asked = time.monotonic()
    supervisor.send_signal(number)
    assert supervisor.wait(5) == 0
    assert time.monotonic() - asked < 1.5
    assert works.queue.operator().workers() == []


def test_a_second_signal_is_at_once_and_the_job_is_due_again(works: Works) -> None:
    works.push("sleep", seconds=30)
    supervisor = works.start("--grace", "60")
    works.until(lambda: works.lines("sleep"))
    supervisor.terminate()
    time.sleep(0.2)
    supervisor.terminate()
    assert supervisor.wait(6) == 0
    assert works.queue.counts() == Counts(1, 0, 0, 0)
    assert works.queue.pop()[0].attempts == 2


def test_usr1_stops_fetching_and_usr2_fetches_again(works: Works) -> None:
    supervisor = works.start()
    works.push("quick", number=1)
    works.until(lambda: works.lines("quick"))
    supervisor.send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    works.push("quick", number=2)
    time.sleep(0.5)
    assert len(works.lines("quick")) == 1
    supervisor.send_signal(signal.SIGUSR2)
    works.until(lambda: len(works.lines("quick")) == 2)


@pytest.mark.parametrize("name", ["deaf", "hog"])
def test_a_handler_that_ignores_its_timeout_counts_as_one_and_costs_only_its_process(works: Works, name: str) -> None:
    job = works.push(name)
    works.push("sleep", seconds=1)
    assert works.work("--grace", "1", within=60) == 0
    assert [line[2] for line in works.lines(name)] == ["1", "2"]
    found = works.queue.operator().find(job.id)
    assert (found.last_error or "").startswith("JobTimeoutError: the handler ran longer than its timeout of 0.3 s")
    assert found.exceptions == 2
    assert len(works.lines("slept")) == 1


def test_memory_ends_the_only_process_with_exit_code_12(works: Works) -> None:
    for _ in range(20):
        works.push("leak")
    assert works.start("--memory", "120", "--concurrency", "1", "--rest", "0.1").wait(30) == 12


def test_one_of_several_processes_is_replaced_when_it_is_old(works: Works) -> None:
    supervisor = works.start("--max-time", "1", "--processes", "2")
    works.push("quick")
    works.until(lambda: works.said().count("started, process") >= 4)
    supervisor.terminate()
    assert supervisor.wait(10) == 0


def test_a_restart_replaces_every_process(works: Works) -> None:
    supervisor = works.start("--processes", "2")
    works.until(lambda: works.said().count("started, process") == 2)
    works.push("quick")
    works.until(lambda: works.lines("quick"))
    time.sleep(1.2)
    subprocess.run([*HESAPE, "restart"], cwd=works.folder, check=True, timeout=20, stdout=subprocess.DEVNULL)
    works.until(lambda: works.said().count("started, process") == 4)
    assert supervisor.poll() is None


def test_nothing_starts_from_a_paused_queue_also_after_a_restart(works: Works) -> None:
    works.queue.operator().pause("default")
    supervisor = works.start()
    works.push("quick", number=1)
    works.push("quick", more="other", number=2)
    works.until(lambda: works.queue.operator().workers())
    time.sleep(0.7)
    supervisor.terminate()
    assert supervisor.wait(10) == 0
    works.start("--queue", "default,other")
    works.until(lambda: [line[1] for line in works.lines("quick")] == ["2"])
    works.queue.operator().resume("default")
    works.until(lambda: [line[1] for line in works.lines("quick")] == ["2", "1"])


def test_once_runs_one_job_and_ends(works: Works) -> None:
    works.push("quick", number=1)
    works.push("quick", number=2)
    assert works.start("--once").wait(15) == 0
    assert len(works.lines("quick")) == 1


def test_a_handler_ends_its_forks_by_signals(works: Works) -> None:
    works.push("kill-forks")
    assert works.work() == 0
    assert len(works.lines("kill-forks")) == 1


def test_an_app_that_cant_be_found_is_an_error_that_says_so(works: Works) -> None:
    command = [*HESAPE, "work", "--app", "nowhere:app"]
    done = subprocess.run(command, cwd=works.folder, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "error[config]: --app nowhere:app: no module named 'nowhere'" in done.stderr
