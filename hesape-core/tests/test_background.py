"""`background` hands its jobs to a child process, which runs each once, under exactly its grant (N5)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hesape as library
from hesape import Job, Keys, Queue, system_grant
from hesape.drivers.local import child as children

Hesape = Callable[..., Any]
GRANT = system_grant("note", "acme")
MODULE = """
import multiprocessing, os, time
import hesape

app = hesape.App()

def take(text, grant):
    with open("taken", "a") as file:
        file.write(f"{text} {os.getpid()} {grant.tenant} {grant.action} {hesape.current_job().connection_name}\\n")

@app.handler("note")
def note(grant: hesape.Grant, text: str, wait: float = 0, more: str = "", route: list = []) -> None:
    take(text + "?", grant)
    time.sleep(0 if route else wait)
    take(text, grant)
    if route:
        payload = {"text": text + "-" + route[0], "wait": wait, "route": route[1:]}
        app.connection(route[0]).push(grant, hesape.Job.new(grant, "note", payload))
    if text == "raise":
        raise ValueError("of the handler's own")
    if text == "push":
        app.connection().push(grant, hesape.Job.new(grant, "note", {"text": "pushed"}))
    if text == "fork" and os.fork() == 0:
        return
    if text == "forks" and os.fork() == 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(os.fork() or os._exit(0), 0)[1]))

@app.handler("kill-forks")
def kill_forks(grant: hesape.Grant) -> None:
    for _ in range(3):
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join()
        assert child.exitcode == -15
    take("kill-forks", grant)

@app.handler("other", action="another")
def other(grant: hesape.Grant) -> None:
    take("other", grant)
"""


class Notes:
    """A process that pushes, and what its child has done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "hesape.toml"
        (folder / "notes.py").write_text(MODULE)
        self.configure()

    def configure(self, *lines: str, app: str = "notes:app", more: str = "") -> None:
        self.file.write_text(f'{more}\n[connections.back]\ndriver = "background"\napp = "{app}"\n' + "\n".join(lines))
        self.app = library.App()

    @property
    def queue(self) -> Queue:
        return self.app.connection("back")

    def push(self, text: str, **payload: object) -> Job:
        return self.queue.push(GRANT, Job.new(GRANT, "note", {"text": text, **payload}))

    def lines(self) -> list[list[str]]:
        file = self.folder / "taken"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def taken(self, *, started: bool = False) -> list[str]:
        return [line[0] for line in self.lines() if line[0].endswith("?") is started]

    def pid(self, text: str) -> int:
        until(lambda: text in [line[0] for line in self.lines()])
        return next(int(line[1]) for line in self.lines() if line[0] == text)


def until(done: Callable[[], object], *, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    for name in ("HESAPE_CONNECTION", "HESAPE_CONFIG", "HESAPE_APP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    found = Notes(tmp_path)
    yield found
    found.app.close()


def test_jobs_run_in_one_child_under_their_own_grants(notes: Notes) -> None:
    notes.push("one")
    other = system_grant("note", "umbrella")
    notes.queue.bulk(other, [Job.new(other, "note", {"text": text}) for text in ("two", "three")])
    notes.app.close()
    found = {text: (int(pid), *rest) for text, pid, *rest in notes.lines()}
    assert found["one"][1:] == ("acme", "note", "back")
    assert found["two"][1:] == found["three"][1:] == ("umbrella", "note", "back")
    pids = {pid for pid, *_ in found.values()}
    assert len(pids) == 1
    assert pids != {os.getpid()}


def test_a_job_of_another_action_than_its_handlers_is_not_run(notes: Notes, capfd: pytest.CaptureFixture[str]) -> None:
    notes.queue.push(GRANT, Job.new(GRANT, "other"))
    notes.app.close()
    assert notes.lines() == []
    assert "ActionMismatchError: the job's action is 'note', its handler 'other' runs under 'another'" in (
        capfd.readouterr().err
    )


def test_a_failing_handler_is_logged_and_not_run_again(notes: Notes, capfd: pytest.CaptureFixture[str]) -> None:
    job = notes.push("raise")
    notes.push("fork")
    notes.app.close()
    assert sorted(notes.taken()) == ["fork", "raise"]
    log = capfd.readouterr().err
    assert f"job {job.id} (note) failed and isn't retried" in log
    assert "ValueError: of the handler's own" in log
    assert "its handler forked, and the child returned" in log


def test_a_delay_is_kept_and_what_is_not_due_at_the_end_is_dropped(
    notes: Notes, capfd: pytest.CaptureFixture[str]
) -> None:
    notes.queue.later(GRANT, 2, Job.new(GRANT, "note", {"text": "later"}))
    notes.queue.later(GRANT, 3600, Job.new(GRANT, "note", {"text": "never"}))
    notes.push("now")
    until(lambda: notes.taken() == ["now", "later"])
    notes.app.close()
    assert "connection back: 1 delayed jobs are dropped" in capfd.readouterr().err
    assert notes.taken() == ["now", "later"]


def test_what_it_was_given_is_finished_at_the_end_of_the_process(notes: Notes) -> None:
    notes.configure("threads = 2")
    script = """
import notes, hesape
grant = hesape.system_grant("note", "acme")
for number in range(6):
    notes.note.push(grant, text=str(number), wait=0.05)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert sorted(notes.taken()) == [str(number) for number in range(6)]


def test_a_parent_that_is_killed_leaves_a_child_that_finishes_and_ends(notes: Notes) -> None:
    script = """
import notes, hesape, os
notes.note.push(hesape.system_grant("note", "acme"), text="left", wait=0.5)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False)
    assert ended.returncode == -signal.SIGKILL
    pid = notes.pid("left")
    until(lambda: not alive(pid))


def test_the_end_is_bounded_and_says_what_is_lost(
    notes: Notes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    notes.configure("threads = 1", "grace = 0.2")
    running, waiting = notes.push("long", wait=60), notes.push("behind")
    notes.pid("long?")
    began = time.monotonic()
    notes.app.close()
    assert time.monotonic() - began < 20
    log = capfd.readouterr().err
    for job in (running, waiting):
        assert f"job {job.id} (note) wasn't over at the end of the grace and is lost" in log
        assert job.id in caplog.text
    assert "ended with exit code 1; 2 jobs that it hadn't finished are lost" in caplog.text


def test_the_end_is_one_for_all_that_pushes_lead_to(notes: Notes, capfd: pytest.CaptureFixture[str]) -> None:
    other = '[connections.other]\ndriver = "background"\n'
    notes.configure(more=other)
    notes.push("a", route=["other", "back", "other", "back"])
    notes.app.close()
    assert notes.taken() == ["a", "a-other", "a-other-back", "a-other-back-other", "a-other-back-other-back"]
    notes.configure("grace = 0.5", more=other)
    notes.push("b", route=["other"], wait=60)
    notes.pid("b-other?")
    notes.app.close()
    assert "(note) wasn't over at the end of the grace and is lost" in capfd.readouterr().err


def test_a_killed_child_is_reported_and_the_next_push_starts_another(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    done, lost = notes.push("done"), notes.push("long", wait=60)
    until(lambda: notes.taken() == ["done"])
    first = notes.pid("long?")
    until(lambda: list(notes.queue.driver._child._given) == [lost.id])  # type: ignore[attr-defined]
    os.kill(first, signal.SIGKILL)
    until(lambda: "was killed by signal 9" in caplog.text)
    assert f"{first} was killed by signal 9; 1 jobs that it hadn't finished are lost: {lost.id}" in caplog.text
    assert done.id not in caplog.text
    notes.push("again")
    assert notes.pid("again") != first


def test_a_child_asked_to_stop_finishes_what_it_has(notes: Notes) -> None:
    notes.push("first", wait=0.5)
    first = notes.pid("first?")
    os.kill(first, signal.SIGTERM)
    until(lambda: notes.taken() == ["first"])
    until(lambda: notes.queue.driver._child.over)  # type: ignore[attr-defined]
    notes.push("second")
    assert notes.pid("second") != first


def test_a_push_that_meets_the_childs_end_is_given_to_the_next(notes: Notes) -> None:
    notes.push("first", wait=5)
    first = notes.queue.driver._child  # type: ignore[attr-defined]
    os.kill(notes.pid("first?"), signal.SIGTERM)
    pushed: list[str] = []

    def given_to_another() -> bool:
        pushed.append(f"text-{len(pushed)}")
        notes.push(pushed[-1])
        return notes.queue.driver._child is not first  # type: ignore[attr-defined]

    until(given_to_another)
    assert list(first._given)
    assert notes.pid(pushed[-1]) != notes.pid("first?")
    until(lambda: sorted(notes.taken()) == sorted(["first", *pushed]))
    assert first._answers == {}


def test_a_push_that_gets_no_answer_has_an_unknown_outcome(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.push("first")
    pid = notes.pid("first")
    os.kill(pid, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(children, "ANSWER_S", 0.2)
        with pytest.raises(library.OutcomeUnknownError, match=r"didn't answer for 0\.2 s"):
            notes.push("second")
    os.kill(pid, signal.SIGCONT)
    notes.push("third")
    assert notes.pid("second") == notes.pid("third") == pid


def test_a_child_that_dies_before_it_answers_leaves_an_unknown_outcome(notes: Notes) -> None:
    notes.push("first")
    pid = notes.pid("first")
    os.kill(pid, signal.SIGSTOP)
    killer = subprocess.Popen([sys.executable, "-c", f"import time, os; time.sleep(0.3); os.kill({pid}, 9)"])
    with pytest.raises(library.OutcomeUnknownError, match="was killed by signal 9 before it answered"):
        notes.push("second")
    killer.wait()


def test_what_a_handler_pushes_there_runs_in_the_same_child(notes: Notes) -> None:
    notes.push("push")
    assert notes.pid("pushed") == notes.pid("push")


def test_too_many_waiting_jobs_are_refused(notes: Notes) -> None:
    notes.configure("room = 2")
    with pytest.raises(library.StoreRefusedError, match="connection 'back': 2 jobs wait already"):
        notes.queue.bulk(GRANT, [Job.new(GRANT, "note", {"text": "x"}) for _ in range(3)])
    notes.push("y")
    notes.app.close()
    assert notes.taken() == ["y"]


def test_a_bulk_as_large_as_allowed_arrives_whole(notes: Notes) -> None:
    notes.configure("room = 500")
    jobs = [Job.new(GRANT, "note", {"text": str(number), "more": "x" * 32_000}) for number in range(500)]
    notes.queue.bulk(GRANT, jobs)
    notes.app.close()
    assert sorted(notes.taken(), key=int) == [str(number) for number in range(500)]


# The seal.


def test_a_record_that_is_sealed_with_another_key_is_refused(notes: Notes) -> None:
    notes.configure(more='[signing.keys]\nk1 = "0123456789abcdef"\n')
    notes.push("sealed")
    notes.app.close()
    for keys, found in (
        (Keys(secrets={"k1": b"fedcba9876543210"}, sealing="k1"), "the record's seal under the key 'k1' is wrong"),
        (Keys(secrets={"k2": b"fedcba9876543210"}, sealing="k2"), "the key b'k2', which isn't configured here"),
        (Keys(), "the record isn't sealed"),
    ):
        notes.app = library.App(keys=keys)
        with pytest.raises(library.StoreRefusedError, match=found):
            notes.push("forged")
        notes.app.close()
    assert notes.taken() == ["sealed"]


# What can't work.


@pytest.mark.parametrize(
    ("app", "found"),
    [
        ("nowhere:app", "config: --app nowhere:app: no module named 'nowhere'"),
        ("broken:app", "importing 'broken' failed: RuntimeError: at import"),
        ("pushes:app", "a push while its child process imports the application"),
        ("elsewhere:app", r"connection 'back' of the App elsewhere:app \(.*\) is 'sync', expected 'background'"),
    ],
)
def test_a_child_that_can_not_work_says_why_at_the_push(notes: Notes, app: str, found: str) -> None:
    (notes.folder / "broken.py").write_text("raise RuntimeError('at import')")
    (notes.folder / "pushes.py").write_text(
        "import notes, hesape\napp = notes.app\nnotes.note.using(connection='back').push("
        "hesape.system_grant('note', 'acme'), text='import')"
    )
    (notes.folder / "other").mkdir()
    (notes.folder / "other" / "hesape.toml").write_text('[connections.back]\ndriver = "sync"')
    (notes.folder / "elsewhere.py").write_text("import hesape\napp = hesape.App('other')")
    notes.configure(app=app)
    with pytest.raises(library.ConfigError, match=found):
        notes.push("never")
    assert notes.lines() == []


def test_a_child_that_dies_at_its_start_took_nothing(notes: Notes) -> None:
    (notes.folder / "dies.py").write_text("import os\nos._exit(3)")
    notes.configure(app="dies:app")
    with pytest.raises(library.StoreUnavailableError, match="ended with exit code 3 before it answered"):
        notes.push("never")


def test_a_child_that_failed_and_does_not_end_is_killed(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LINGER_S", 0.2)
    (notes.folder / "stays.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\nraise RuntimeError('no')"
    )
    notes.configure(app="stays:app")
    began = time.monotonic()
    with pytest.raises(library.ConfigError, match="RuntimeError: no"):
        notes.push("never")
    assert time.monotonic() - began < 40


def test_a_child_that_can_not_be_started_is_an_unavailable_store(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    def refuse(thread: threading.Thread) -> None:
        started.append(int(thread.name.rpartition("-")[2]))
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(library.StoreUnavailableError, match="can't be started: can't start new thread"):
            notes.push("never")
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", str(notes.folder / "nothing"))
        notes.app = library.App()
        with pytest.raises(library.StoreUnavailableError, match=r"can't be started: .*No such file"):
            notes.push("never")
    notes.app = library.App()
    notes.push("now")
    assert notes.pid("now")


def test_it_works_whatever_the_default_timeout_of_sockets(notes: Notes) -> None:
    socket.setdefaulttimeout(0.05)
    try:
        notes.push("first", wait=0.2)
        until(lambda: notes.taken() == ["first"])
        notes.push("second")
    finally:
        socket.setdefaulttimeout(None)
    assert notes.pid("first") == notes.pid("second")


def test_half_a_line_counts_for_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b'{"done": "a"}\n{"done": ')
        theirs.shutdown(socket.SHUT_WR)
        assert list(children.heard(ours)) == [{"done": "a"}]


def test_the_application_comes_from_the_table_or_the_environment(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.file.write_text('[connections.back]\ndriver = "background"')
    notes.app = library.App()
    with pytest.raises(library.ConfigError, match="app isn't set, nor HESAPE_APP; expected MODULE:ATTRIBUTE"):
        notes.push("never")
    monkeypatch.setenv("HESAPE_APP", "notes:app")
    notes.push("found")
    assert notes.pid("found") != os.getpid()


@pytest.mark.parametrize("line", ["grace = -1", "grace = true", 'grace = "soon"', "threads = 0"])
def test_a_wrong_setting_is_refused(notes: Notes, line: str) -> None:
    notes.configure(line)
    with pytest.raises(library.ConfigError, match=f"connection 'back': {line.partition(' ')[0]} is"):
        notes.push("never")


def test_the_applications_text_must_be_text(notes: Notes) -> None:
    notes.file.write_text('[connections.back]\ndriver = "background"\napp = 1')
    notes.app = library.App()
    with pytest.raises(library.ConfigError, match="app is 1, expected text"):
        notes.push("never")


def test_the_command_is_the_drivers_own(hesape: Hesape, notes: Notes) -> None:
    ran = hesape("work", "back", "--app", "notes:app", "--stdin", "--max-jobs", "2")
    assert (ran.code, ran.err.partition(" (")[0]) == (
        2,
        "error[usage]: --max-jobs doesn't go with --stdin: the connection's table has its options",
    )
    line = [sys.executable, "-m", "hesape", "work", "back", "--app", "notes:app", "--stdin"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "error[config]: --stdin is for the driver 'background', which starts this command itself\n",
    )


def test_a_push_from_the_command_line_is_run(hesape: Hesape, notes: Notes) -> None:
    other = notes.folder / "named.toml"
    notes.file.rename(other)
    text = ("push", "note", '{"text": "typed"}', "--tenant", "acme", "--action", "note")
    assert hesape(*text, "--config", "named.toml", "-c", "back").code == 0
    assert notes.taken() == ["typed"]


# Forks.


def test_a_forked_process_has_a_child_of_its_own(notes: Notes) -> None:
    script = """
import notes, hesape, os, pathlib, sys, time
grant = hesape.system_grant("note", "acme")
sys.path.append(pathlib.Path("no text"))
notes.note.push(grant, text="parent")
if pid := os.fork():
    notes.app.close()  # its child ends although the forked process lives
    os.kill(pid, 0)
    notes.note.push(grant, text="parent-again")
    assert os.waitpid(pid, 0)[1] == 0
    child = notes.app.connection().driver._child
    while child._given:
        time.sleep(0.01)
    child._popen.kill()
    child._reader.join()
    if os.fork() == 0:
        os._exit(0)
    notes.app.close()
else:
    notes.note.push(grant, text="forked")
    notes.app.close()
    os._exit(0)
"""
    line = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script]
    done = subprocess.run(line, check=True, timeout=120, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert sorted(notes.taken()) == ["forked", "parent", "parent-again"]
    assert len({notes.pid("forked"), notes.pid("parent"), notes.pid("parent-again")}) == 3


def test_a_fork_of_a_fork_is_quiet(notes: Notes, capfd: pytest.CaptureFixture[str]) -> None:
    notes.push("forks")
    notes.app.close()
    assert capfd.readouterr().err == ""


def test_a_handler_ends_its_forks_by_signals(notes: Notes) -> None:
    grant = system_grant("kill-forks", "acme")
    notes.queue.push(grant, Job.new(grant, "kill-forks"))
    until(lambda: notes.taken() == ["kill-forks"])


def test_the_child_is_told_where_modules_are_found(notes: Notes) -> None:
    away = notes.folder / "away"
    away.mkdir()
    notes.configure("grace = 5")
    (notes.folder / "notes.py").rename(away / "notes.py")
    script = f"""
import sys; sys.path.insert(0, {str(away)!r})
import notes, hesape
notes.note.push(hesape.system_grant("note", "acme"), text="found")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert notes.taken() == ["found"]


def test_the_log_of_the_process_that_pushes_is_quiet_when_all_went_well(
    notes: Notes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "hesape"):
        notes.push("one")
        notes.app.close()
    assert caplog.text == ""
