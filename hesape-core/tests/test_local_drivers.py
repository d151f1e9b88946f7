"""Local drivers run or drop their jobs, keep nothing, and are no way around a grant (N5)."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hesape
from hesape import Attributes, Job, Queue, system_grant

GRANT = system_grant("note", "acme")
OTHER = system_grant("note", "umbrella")


class Notes:
    """An application whose one handler takes notes."""

    def __init__(self, folder: Path, driver: str, **options: object) -> None:
        if driver == "background":
            options["app"] = '"never:started"'
        lines = [f'driver = "{driver}"', *(f"{name} = {value}" for name, value in options.items())]
        (folder / "hesape.toml").write_text("[connections.default]\n" + "\n".join(lines))
        self.app = hesape.App(folder)
        self.taken: list[tuple[str, str, str]] = []
        self.gate = threading.Event()
        self.gate.set()

        @self.app.handler("note")
        def note(job: Job, grant: hesape.Grant, text: str) -> None:
            self.gate.wait(10)
            self.taken.append((text, grant.tenant, threading.current_thread().name))
            if text == "raise":
                raise hesape.OutcomeUnknownError("of the handler's own")
            if text == "release":
                job.release(1)
            if text == "fail":
                job.fail("no")

    @property
    def queue(self) -> Queue:
        return self.app.connection()

    def job(self, text: str, **fields: object) -> Job:
        return Job.new(GRANT, "note", {"text": text}, **fields)  # type: ignore[arg-type]

    def texts(self) -> list[str]:
        return [text for text, _, _ in self.taken]


def until(done: object, *, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


EVERY = ["sync", "deferred", "background", "null"]


@pytest.mark.parametrize("driver", EVERY)
def test_every_door_refuses_a_forged_and_an_oversized_job_before_anything_runs(tmp_path: Path, driver: str) -> None:
    notes = Notes(tmp_path, driver)
    for push in (notes.queue.push, lambda grant, job: notes.queue.bulk(grant, [job])):
        with pytest.raises(hesape.ForgedError):
            push(OTHER, notes.job("forged"))
    job = notes.job("big")
    job.payload = b'"' + b"x" * 40_000 + b'"'
    with pytest.raises(hesape.PayloadTooLargeError):
        notes.queue.push(GRANT, job)
    with pytest.raises(hesape.ForgedError):
        notes.queue.driver.store([job])  # type: ignore[list-item]
    notes.app.close()
    assert notes.taken == []


@pytest.mark.parametrize("driver", EVERY)
def test_looks_and_repairs_and_pops_are_refused(tmp_path: Path, driver: str) -> None:
    queue = Notes(tmp_path, driver).queue
    read = system_grant("hesape.failed.read", "acme")
    for call in (queue.pop, queue.counts, queue.queues, queue.oldest_pending, queue.operator().workers):
        with pytest.raises(hesape.UnsupportedError, match=driver):
            call()
    with pytest.raises(hesape.UnsupportedError):
        queue.failed(read)
    with pytest.raises(hesape.UnsupportedError):
        queue.lock("a", 5).take()
    with pytest.raises(hesape.UnsupportedError, match="transaction"):
        queue.push(GRANT, Job.new(GRANT, "note"), tx=object())


@pytest.mark.parametrize("driver", ["sync", "deferred", "background"])
def test_a_unique_key_is_refused_since_nothing_keeps_it(tmp_path: Path, driver: str) -> None:
    notes = Notes(tmp_path, driver)
    with pytest.raises(hesape.UnsupportedError, match="unique"):
        notes.queue.push(GRANT, notes.job("once", attributes=Attributes(unique_for=60)))
    assert notes.taken == []


@pytest.mark.parametrize("driver", EVERY)
def test_an_unknown_option_is_refused_by_name(tmp_path: Path, driver: str) -> None:
    with pytest.raises(hesape.ConfigError, match="colour"):
        _ = Notes(tmp_path, driver, colour=1).queue


@pytest.mark.parametrize("driver", EVERY)
@pytest.mark.parametrize("rest", ["", "place", "[::1"])
def test_an_address_is_refused(tmp_path: Path, driver: str, rest: str) -> None:
    notes = Notes(tmp_path, driver, url=f'"{driver}://{rest}"')
    if not rest:
        assert notes.queue.driver.spec.name == driver
        return
    with pytest.raises(hesape.ConfigError, match=f"the driver '{driver}' takes no address"):
        _ = notes.queue


def test_sync_runs_inside_push_under_the_jobs_grant(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "sync")
    notes.queue.push(GRANT, notes.job("now"))
    assert notes.taken == [("now", "acme", threading.current_thread().name)]


def test_sync_lets_the_handlers_error_out_and_runs_it_once(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "sync")
    with pytest.raises(hesape.OutcomeUnknownError, match="of the handler's own"):
        notes.queue.push(GRANT, notes.job("raise"))
    assert notes.texts() == ["raise"]


def test_sync_refuses_a_delay_and_a_release(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "sync")
    delayed: list[Callable[[], object]] = [
        lambda: notes.queue.later(GRANT, 5, notes.job("later")),
        lambda: notes.queue.push(GRANT, notes.job("later", run_at=datetime.now(UTC) + timedelta(hours=1))),
    ]
    for push in delayed:
        with pytest.raises(hesape.UnsupportedError, match="delay"):
            push()
    notes.queue.push(GRANT, notes.job("past", run_at=datetime(2020, 1, 1, tzinfo=UTC)))
    with pytest.raises(hesape.UnsupportedError, match="release"):
        notes.queue.push(GRANT, notes.job("release"))
    notes.queue.push(GRANT, notes.job("fail"))
    assert notes.texts() == ["past", "release", "fail"]


def test_null_drops_what_it_checked(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "null")
    assert notes.queue.push(GRANT, notes.job("gone")).queue == "default"
    assert notes.taken == []


def test_deferred_runs_after_push_on_a_few_threads_of_its_own(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "deferred", threads=2)
    notes.gate.clear()
    notes.queue.bulk(GRANT, [notes.job(str(number)) for number in range(20)])
    assert notes.taken == []
    notes.gate.set()
    until(lambda: len(notes.taken) == 20)
    assert sorted(notes.texts(), key=int) == [str(number) for number in range(20)]
    assert len({name for _, _, name in notes.taken}) <= 2
    notes.app.close()


def test_deferred_waits_for_what_is_delayed_and_survives_an_error(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "deferred", threads=1)
    notes.queue.later(GRANT, 0.2, notes.job("second"))
    notes.queue.push(GRANT, notes.job("raise"))
    until(lambda: len(notes.taken) == 2)
    assert notes.texts() == ["raise", "second"]
    notes.app.close()


def test_deferred_is_drained_when_it_is_closed_and_has_limited_room(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "deferred", threads=1, room=5)
    notes.gate.clear()
    with pytest.raises(hesape.StoreRefusedError, match="5 jobs wait"):
        notes.queue.bulk(GRANT, [notes.job("x") for _ in range(6)])
    notes.queue.bulk(GRANT, [notes.job("x") for _ in range(4)])
    notes.queue.later(GRANT, 3600, notes.job("dropped"))
    notes.gate.set()
    notes.app.close()
    assert notes.texts() == ["x"] * 4
    notes.queue.push(GRANT, notes.job("again"))
    until(lambda: notes.texts()[-1] == "again")
    notes.app.close()


def test_deferred_is_drained_at_the_end_of_the_process(tmp_path: Path) -> None:
    script = """
import hesape, os, sys, time
app = hesape.App(sys.argv[1])
@app.handler("note")
def note(text: str) -> None:
    time.sleep(0.05)
    os.write(1, (text + chr(10)).encode())
grant = hesape.system_grant("note", "acme")
for number in range(8):
    note.push(grant, text=str(number))
"""
    (tmp_path / "hesape.toml").write_text('[connections.default]\ndriver = "deferred"\nthreads = 2\n')
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert sorted(run.stdout.split()) == [str(number) for number in range(8)]


def test_what_is_pushed_when_no_thread_starts_any_more_runs_or_is_refused(tmp_path: Path) -> None:
    script = """
import atexit, hesape, os, sys, threading, time

def late():
    threading.Thread.start = refuse
    try:
        note.push(grant, text="nobody")
    except hesape.StoreRefusedError as error:
        os.write(1, f"{error}\\n".encode())

def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

atexit.register(late)  # runs after the drain
app = hesape.App(sys.argv[1])
@app.handler("note")
def note(text: str) -> None:
    if text == "first":
        while not app.connection().driver.pool._ending:
            time.sleep(0.001)
        threading.Thread.start = refuse
        for number in range(3):
            note.push(grant, text=str(number))
    os.write(1, f"{text}\\n".encode())
grant = hesape.system_grant("note", "acme")
note.push(grant, text="first")
"""
    (tmp_path / "hesape.toml").write_text('[connections.default]\ndriver = "deferred"\nthreads = 4\n')
    line = [sys.executable, "-c", script, str(tmp_path)]
    run = subprocess.run(line, capture_output=True, text=True, check=True, timeout=60)
    refused = "connection 'default': no thread starts for its jobs: can't create new thread at interpreter shutdown"
    assert (run.stdout.splitlines(), run.stderr) == (["first", "0", "1", "2", refused], "")


def test_what_a_handler_of_deferred_pushes_while_it_is_drained_is_drained_too(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "deferred", threads=1)
    closing = threading.Event()

    @notes.app.handler("again")
    def again() -> None:
        closing.wait(10)
        while not notes.queue.driver.pool._ending:  # type: ignore[attr-defined]
            time.sleep(0.001)
        notes.queue.push(GRANT, notes.job("late"))

    grant = system_grant("again", "acme")
    notes.queue.push(grant, Job.new(grant, "again"))
    closer = threading.Thread(target=notes.app.close, daemon=True)
    closer.start()
    closing.set()
    closer.join(10)
    assert not closer.is_alive()
    assert notes.texts() == ["late"]


def test_one_job_of_deferred_starts_one_thread(tmp_path: Path) -> None:
    notes = Notes(tmp_path, "deferred", threads=4)
    notes.queue.push(GRANT, notes.job("one"))
    until(lambda: notes.texts() == ["one"])
    assert len(notes.queue.driver.pool._workers) == 1  # type: ignore[attr-defined]
    notes.app.close()


def test_a_forked_process_leaves_what_deferred_holds_to_its_parent(tmp_path: Path) -> None:
    script = """
import hesape, os, sys
app = hesape.App(sys.argv[1])
@app.handler("note")
def note(text: str) -> None:
    os.write(1, f"{text} {os.getpid() == parent}\\n".encode())
parent = os.getpid()
grant = hesape.system_grant("note", "acme")
note.later(grant, 0.5, text="parent")
if child := os.fork():
    os.waitpid(child, 0)
    import time; time.sleep(0.5)
else:
    note.push(grant, text="child")
app.close()
"""
    (tmp_path / "hesape.toml").write_text('[connections.default]\ndriver = "deferred"\n')
    run = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["child False", "parent True"]
