"""One file, many threads and processes (E2, L6, L7)."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
from hesape.records import Claim, Key, new_token

GRANT = system_grant("act", "acme")
PATIENCE_S = 40

OPEN = """
import os, sys, time
from pathlib import Path
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
path = Path(sys.argv[1])
driver = SqliteDriver(SqliteSettings(path=path))
queue = Queue(driver)
grant = system_grant("act", "acme")
"""
WORK = (
    OPEN
    + """
with open(sys.argv[2], "a", buffering=1) as log:
    while not path.with_name("stop").exists():
        jobs = queue.pop(n=5)
        for job in jobs:
            log.write(job.id + "\\n")
            job.delete()
        if not jobs:
            driver.wait(["default"], 0.2)
"""
)
PUSH = (
    OPEN
    + """
for number in range(300):
    queue.push(grant, Job.new(grant, "work", {"number": number}))
    time.sleep(0.005)
"""
)
HOLD = (
    OPEN
    + """
driver.beat("w", 60_000_000, 60_000_000)
from hesape.records import Claim
driver.reserve(Claim(("default",), 1, 3_600_000_000, b"0" * 16, "w"))
print("held", flush=True)
time.sleep(60)
"""
)


def start(script: str, *args: object, **how: Any) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script, *map(str, args)], text=True, **how)


def wait_until(what: Any, patience_s: float = PATIENCE_S) -> None:
    deadline = monotonic() + patience_s
    while not what():
        assert monotonic() < deadline, "it didn't happen in time"
        sleep(0.01)


@pytest.fixture
def driver(tmp_path: Path) -> Any:
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db"))
    yield driver
    driver.close()


def test_four_workers_do_every_job_once_while_somebody_else_holds_the_file(driver: SqliteDriver) -> None:
    queue, folder = Queue(driver), driver.path.parent
    queue.counts()
    logs = [folder / f"log{number}" for number in range(4)]
    workers = [start(WORK, driver.path, log) for log in logs]
    pusher = start(PUSH, driver.path)
    wait_until(lambda: any(log.exists() and log.stat().st_size for log in logs))
    outside = sqlite3.connect(driver.path, isolation_level=None)
    outside.execute("BEGIN IMMEDIATE")
    sleep(2)  # the time for which the outside transaction lasts is what is tested
    outside.execute("ROLLBACK")
    outside.close()
    try:
        assert pusher.wait(PATIENCE_S) == 0
        wait_until(lambda: queue.counts().size == 0)
    finally:
        (folder / "stop").touch()
    assert [worker.wait(PATIENCE_S) for worker in workers] == [0] * 4
    done = Counter(line for log in logs for line in log.read_text().split())
    assert len(done) == 300
    assert set(done.values()) == {1}


def test_eight_threads_push_pop_and_settle_their_jobs_once_each(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    done: list[str] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for number in range(200):
                queue.push(GRANT, Job.new(GRANT, "work", {"number": number}))
                for job in queue.pop(n=2):
                    job.extend(30)
                    job.delete()
                    done.append(job.id)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while jobs := queue.pop(n=100):
        assert driver.delete_jobs(jobs) == []
        done += [job.id for job in jobs]
    assert errors == []
    assert len(done) == len(set(done)) == 1_600


def test_two_drivers_on_one_file_see_the_same_jobs(driver: SqliteDriver) -> None:
    other = SqliteDriver(driver.settings)
    Queue(driver).push(GRANT, Job.new(GRANT, "work"))
    assert [job.name for job in Queue(other).pop()] == ["work"]
    other.close()
    assert Queue(driver).counts().reserved == 1


def test_processes_that_start_together_migrate_once(tmp_path: Path) -> None:
    script = OPEN + "driver.counts('default'); print(driver._connections.store_id, driver.schema_version())"
    together = [start(script, tmp_path / "jobs.db", stdout=subprocess.PIPE) for _ in range(4)]
    answers = [process.communicate(timeout=PATIENCE_S)[0] for process in together]
    assert [process.returncode for process in together] == [0] * 4
    assert len(set(answers)) == 1


def test_a_push_by_another_process_ends_the_wait(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    assert queue.counts().size == 0
    script = OPEN + "time.sleep(0.3); queue.push(grant, Job.new(grant, 'work'))"
    process = start(script, driver.path)
    started = monotonic()
    assert driver.wait(["default"], PATIENCE_S)
    assert monotonic() - started < PATIENCE_S / 2
    assert process.wait(PATIENCE_S) == 0


def test_a_killed_workers_jobs_come_back_although_its_lease_and_beat_are_long(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    queue.push(GRANT, Job.new(GRANT, "work"))
    process = start(HOLD, driver.path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    assert driver.rescue() == 0
    assert queue.counts().reserved == 1
    process.kill()
    process.wait()
    process.stdout.close()
    assert driver.rescue() == 1
    assert driver.workers() == []
    assert [(job.attempts, job.record().job.name) for job in queue.pop()] == [(2, "work")]
    assert list(driver.path.with_name("jobs.db-workers").iterdir()) == []


def test_a_worker_that_was_taken_for_dead_registers_and_locks_anew(driver: SqliteDriver) -> None:
    other = SqliteDriver(driver.settings)
    driver.beat("w", 1, 60_000_000)
    assert other.rescue() == 0
    assert other.workers() == []
    driver.beat("w", 60_000_000, 60_000_000)
    assert other.rescue() == 0
    assert [row.worker for row in other.workers()] == ["w"]
    driver.close()
    other.rescue()
    assert other.workers() == []
    other.close()


def test_killing_a_worker_at_any_moment_loses_no_job(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    queue.bulk(GRANT, [Job.new(GRANT, "work") for _ in range(2_000)])
    script = OPEN + "\nwhile jobs := queue.pop(n=7, lease=0.05): driver.delete_jobs(jobs[:3])"
    process = start(script, driver.path)
    wait_until(lambda: queue.counts().size < 1_900)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = queue.counts().size
    assert left > 0
    found: set[str] = set()
    deadline = monotonic() + PATIENCE_S
    while len(found) < left and monotonic() < deadline:
        jobs = queue.pop(n=100)
        found |= {job.id for job in jobs}
        assert driver.delete_jobs(jobs) == []
    assert len(found) == left
    assert queue.counts().size == 0


def test_a_forked_child_and_its_parent_both_go_on(driver: SqliteDriver) -> None:
    """In a process of its own, which has one thread."""
    script = (
        OPEN
        + """
queue.push(grant, Job.new(grant, "before"))
driver.beat("parent", 60_000_000, 60_000_000)
child = os.fork()
for number in range(50):
    queue.push(grant, Job.new(grant, "child" if child == 0 else "parent"))
    queue.pop()[0].delete()
if child == 0:
    driver.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert queue.counts().size == 1, queue.counts()
assert driver.rescue() == 0 and [row.worker for row in driver.workers()] == ["parent"]
"""
    )
    process = start(script, driver.path, stderr=subprocess.PIPE)
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)
    check = sqlite3.connect(driver.path)
    assert check.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check.close()


def test_a_fork_waits_for_what_other_threads_do_with_the_store(driver: SqliteDriver) -> None:
    script = (
        OPEN
        + """
import threading, warnings
warnings.simplefilter('ignore', DeprecationWarning)  # newer Pythons warn of every fork beside threads
stop = threading.Event()
def work():
    while not stop.is_set():
        queue.push(grant, Job.new(grant, "work"))
        queue.counts()
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for number in range(20):
    child = os.fork()
    if child == 0:
        queue.push(grant, Job.new(grant, "child"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads:
    thread.join()
"""
    )
    process = start(script, driver.path, stderr=subprocess.PIPE)
    assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == ("", 0)
    jobs = driver.reserve(Claim(("default",), 100_000, 60_000_000, new_token())).rows
    assert sum(b'"child"' in row.envelope for row in jobs) == 20


def test_a_child_that_python_did_not_see_fork_opens_its_own_connections(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    queue.push(GRANT, Job.new(GRANT, "work"))
    inherited = driver._connections._writer
    driver._connections._pid = os.getpid() + 1
    assert queue.counts().size == 1
    assert driver._connections._writer is not inherited
    assert inherited is not None
    assert inherited.execute("SELECT 1").fetchone() == (1,)


def test_a_worker_that_exits_leaves_a_file_that_the_next_one_finds_whole(driver: SqliteDriver) -> None:
    script = OPEN + "queue.push(grant, Job.new(grant, 'work')); queue.pop(lease=0.001)"
    assert start(script, driver.path).wait(PATIENCE_S) == 0
    token = new_token()
    wait_until(lambda: driver.reserve(Claim(("default",), 1, 60_000_000, token)).rows)
    (row,) = driver.reserve(Claim(("default",), 1, 60_000_000, token, repeat=True)).rows
    assert (row.attempts, row.lapses) == (2, 1)
    assert driver._delete([Key(row.id, token)], repeat=False, tx=None) == []


def test_two_objects_may_beat_for_one_worker_which_lives_while_one_holds_its_lock(driver: SqliteDriver) -> None:
    first, second = SqliteDriver(driver.settings), SqliteDriver(driver.settings)
    first.beat("w", 60_000_000, 60_000_000)
    second.beat("w", 60_000_000, 60_000_000)
    first.close()
    second.beat("w", 60_000_000, 60_000_000)
    driver.rescue()
    assert [row.worker for row in driver.workers()] == ["w"]
    second.close()
    driver.rescue()
    assert driver.workers() == []


def test_a_lock_that_passes_from_a_dead_supervisor_to_its_process_is_no_death(driver: SqliteDriver) -> None:
    first, second = SqliteDriver(driver.settings), SqliteDriver(driver.settings)
    first.beat("w", 60_000_000, 60_000_000)
    first.close()
    taking_over = threading.Timer(0.2, second.beat, ("w", 60_000_000, 60_000_000))
    taking_over.start()
    driver.rescue()
    taking_over.join()
    assert [row.worker for row in driver.workers()] == ["w"]
    second.close()


def test_opening_the_file_again_leaves_the_locks_of_this_process_alone(tmp_path: Path) -> None:
    """Closing a handle ends every lock that its process has on the file: another one would then remove the log."""
    path = tmp_path / "jobs.db"
    first, second = (Queue(SqliteDriver(SqliteSettings(path=path))) for _ in range(2))
    for queue in (first, second):
        queue.push(GRANT, Job.new(GRANT, "work"))
    assert start(OPEN + 'queue.push(grant, Job.new(grant, "work")); driver.close()', path).wait(PATIENCE_S) == 0
    assert path.with_name("jobs.db-wal").exists()
    first.push(GRANT, Job.new(GRANT, "work"))
    for queue in (first, second):
        assert queue.counts().size == 4
        queue.driver.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM hesape_jobs").fetchone() == (4,)
    connection.close()
