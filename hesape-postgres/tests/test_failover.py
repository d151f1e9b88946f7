"""A failover connection before PostgreSQL and SQLite, while the server is killed and comes back (I2)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from hesape.app import App
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Worker
from hesape_postgres.testing import PrivatePostgres

PRODUCERS, JOBS = 4, 500
GRANT = system_grant("note", "acme")
PRODUCE = """
import sys, time, hesape
app = hesape.App(sys.argv[1])
queue, grant = app.connection("safe"), hesape.system_grant("note", "acme")
for number in range(int(sys.argv[2])):
    job = hesape.Job.new(grant, "note", {"number": number})
    deadline = time.monotonic() + 60
    while True:
        try:
            queue.push(grant, job)
        except hesape.StoreError as error:
            if time.monotonic() > deadline:
                raise
            print(type(error).__name__, file=sys.stderr, flush=True)
        else:
            break
    print(job.id, flush=True)
"""


class Place:
    """A private server, a file, and the connection before both."""

    def __init__(self, folder: Path, server: PrivatePostgres) -> None:
        self.server = server
        (folder / "hesape.toml").write_text(f"""
[connections.safe]
driver = "failover"
connections = ["orders", "main"]
[connections.orders]
url = "{server.url}"
connect_timeout = 2
[connections.main]
url = "sqlite:///main.db"
""")
        self.folder = folder
        self.app = App(folder)
        self.queue = self.app.connection("safe")
        self.done: list[tuple[str, str]] = []

        @self.app.handler("note")
        def note(job: Job, number: int) -> None:
            self.done.append((job.id, job.connection_name))

    def pending(self, name: str) -> int:
        return self.app.connection(name).counts().pending

    def push_one(self) -> str:
        return self.queue.push(GRANT, Job.new(GRANT, "note", {"number": 0})).id

    def log(self, name: str) -> Path:
        return self.folder / name

    def produce(self, number: int) -> subprocess.Popen[bytes]:
        with self.log(f"pushed{number}").open("wb") as out, self.log(f"errors{number}").open("wb") as errors:
            arguments = [sys.executable, "-c", PRODUCE, str(self.folder), str(JOBS)]
            return subprocess.Popen(arguments, stdout=out, stderr=errors)

    def pushed(self) -> list[str]:
        return [line for number in range(PRODUCERS) for line in self.log(f"pushed{number}").read_text().split()]

    def work(self) -> None:
        Worker(self.queue, self.app.handlers, WorkerOptions(concurrency=8, stop_when_empty=True)).run()


def until(condition: Callable[[], object], within_s: float = 60) -> None:
    deadline = monotonic() + within_s
    while not condition():
        assert monotonic() < deadline, "it didn't come true in time"
        sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with PrivatePostgres(fsync="off") as server:
        place = Place(tmp_path, server)
        yield place
        place.app.close()


def test_every_job_exists_once_though_the_server_is_killed_in_the_middle_of_2000_pushes(place: Place) -> None:
    place.queue.counts()
    producers = [place.produce(number) for number in range(PRODUCERS)]
    until(lambda: len(place.pushed()) > 300)
    place.server.kill()
    killed_at = len(place.pushed())
    until(lambda: len(place.pushed()) > killed_at + 300)
    place.server.restart()
    assert [producer.wait(90) for producer in producers] == [0] * PRODUCERS

    ids = place.pushed()
    assert len(ids) == len(set(ids)) == PRODUCERS * JOBS
    stored = place.pending("orders"), place.pending("main")
    assert sum(stored) == PRODUCERS * JOBS, "each job is stored once, on one of the two"
    assert min(stored) > 300, "both stores took part"

    until(lambda: place.push_one() and place.pending("orders") > stored[0])  # it takes over
    place.work()
    ran = Counter(job_id for job_id, _ in place.done)
    assert set(ids) <= set(ran)
    assert set(ran.values()) == {1}
    assert {name for _, name in place.done} == {"orders", "main"}
    assert place.queue.counts().size == 0


def test_jobs_of_the_second_store_are_worked_while_the_first_is_dead(place: Place) -> None:
    place.push_one()
    place.server.kill()
    later = [place.push_one() for _ in range(5)]
    worker = Worker(place.queue, place.app.handlers, WorkerOptions(concurrency=2, sleep_s=0.05))
    thread = threading.Thread(target=worker.run)
    thread.start()
    until(lambda: {job_id for job_id, _ in place.done} == set(later))
    place.server.restart()
    until(lambda: len(place.done) == 6)
    worker.stop()
    thread.join(30)
    assert sorted(name for _, name in place.done) == ["main"] * 5 + ["orders"]
