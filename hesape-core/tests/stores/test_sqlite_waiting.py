"""Being woken, with the system's events and without (W1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from hesape.drivers.sqlite import waiting
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue

GRANT = system_grant("act", "acme")
PATIENCE_S = 30


@pytest.fixture(params=["events", "no events", "no log at first"])
def driver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteDriver]:
    if request.param == "no events":
        monkeypatch.setattr(waiting, "_init", None)
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db"))
    if request.param == "no log at first":
        with driver._watches.naps() as naps:
            assert not naps._armed
    yield driver
    driver.close()


def push_soon(queue: Queue) -> threading.Thread:
    """Push from another thread once somebody waits."""

    def push() -> None:
        sleep(0.05)
        queue.push(GRANT, Job.new(GRANT, "work"))

    thread = threading.Thread(target=push)
    thread.start()
    return thread


def test_every_push_ends_a_wait(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    for _ in range(5):
        thread = push_soon(queue)
        started = monotonic()
        assert driver.wait(["default"], PATIENCE_S)
        assert monotonic() - started < PATIENCE_S / 2
        thread.join()
        assert len(queue.pop()) == 1


def test_a_push_ends_the_wait_also_after_the_log_was_made_anew(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    assert not driver.wait(["default"], 0)
    driver.close()
    assert not driver.path.with_name("jobs.db-wal").exists()
    thread = push_soon(queue)
    assert driver.wait(["default"], PATIENCE_S)
    thread.join()


def test_a_job_that_falls_due_ends_the_wait(driver: SqliteDriver) -> None:
    Queue(driver).later(GRANT, 0.2, Job.new(GRANT, "work"))
    started = monotonic()
    assert driver.wait(["default"], PATIENCE_S)
    assert 0.1 < monotonic() - started < PATIENCE_S / 2


def test_a_lease_that_runs_out_ends_the_wait(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    queue.push(GRANT, Job.new(GRANT, "work"))
    queue.pop(lease=0.2)
    assert driver.wait(["default"], PATIENCE_S)
    assert [job.attempts for job in queue.pop()] == [2]


def test_what_others_write_does_not_end_the_wait(driver: SqliteDriver) -> None:
    queue = Queue(driver)
    queue.counts()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            queue.flag("a").set("b")

    thread = threading.Thread(target=write)
    thread.start()
    woken = driver.wait(["default"], 0.3)
    stop.set()
    thread.join()
    assert not woken


def test_waiting_again_and_again_opens_no_more_handles(driver: SqliteDriver) -> None:
    driver.wait(["default"], 0)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        driver.wait(["default"], 0.001)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_wait_without_any_handle_left_still_ends(driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: Any) -> int:
        return -1

    monkeypatch.setattr(waiting, "_init", none_left)
    driver._watches.close()
    thread = push_soon(Queue(driver))
    assert driver.wait(["default"], PATIENCE_S)
    thread.join()
