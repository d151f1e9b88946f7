"""A queue's methods, awaitable: on threads of their own, whatever becomes of who awaits them."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape import Job, Queue, system_grant
from hesape.aio import THREADS, Aio
from hesape.drivers.memory.driver import MemoryDriver
from hesape.testing import fake

GRANT = system_grant("mail", "acme")
DEADLINE_S = 30


def job() -> Job:
    return Job.new(GRANT, "mail")


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    with hesape.connect(f"sqlite:///{tmp_path / 'jobs.db'}") as queue:
        queue.counts()
        yield queue


class Stuck:
    """Holds calls of a driver's method until it is told to let them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        self.held = threading.Semaphore(0)
        self.go = threading.Event()
        call: Callable[..., Any] = getattr(MemoryDriver, method)

        def stuck(*args: Any, **kwargs: Any) -> Any:
            self.held.release()
            assert self.go.wait(DEADLINE_S)
            return call(*args, **kwargs)

        monkeypatch.setattr(MemoryDriver, method, stuck)

    async def holds(self, calls: int = 1) -> None:
        for _ in range(calls):
            assert await asyncio.to_thread(self.held.acquire, timeout=DEADLINE_S)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in a thread
            await asyncio.sleep(0.01)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_whatever_of_a_queue_and_a_job_asks_the_store_is_there() -> None:
    local = {"operator", "lock", "counter", "flag", "aio", "close", "notify", "receive", "tell_retried"}
    queue = {name for name, _ in inspect.getmembers(Queue) if not name.startswith("_")}
    assert vars(Aio(hesape.connect("memory://"))).keys() == queue - local | {"delete", "release", "fail", "extend"}


def test_a_push_settlement_and_look_are_as_without_it(queue: Queue) -> None:
    async def work() -> tuple[Job, list[Job], int]:
        stored = await queue.aio.push(GRANT, job())
        popped = await queue.aio.pop()
        await queue.aio.delete(popped[0])
        return stored, popped, (await queue.aio.counts()).size

    stored, popped, left = asyncio.run(work())
    assert ([one.id for one in popped], left) == ([stored.id], 0)
    with pytest.raises(hesape.ForgedError):
        asyncio.run(queue.aio.push(system_grant("mail", "globex"), popped[0]))


def test_a_stuck_store_holds_up_neither_the_loop_nor_more_threads_than_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck, queue = Stuck(monkeypatch, "_store"), hesape.connect("memory://")

    async def work() -> int:
        pushes = [asyncio.create_task(queue.aio.push(GRANT, job())) for _ in range(3 * THREADS)]
        await stuck.holds(THREADS)
        assert not stuck.held.acquire(blocking=False)
        stuck.go.set()
        return len({one.id for one in await asyncio.gather(*pushes)})

    assert asyncio.run(work()) == 3 * THREADS
    assert queue.counts().pending == 3 * THREADS


def test_a_cancelled_push_runs_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, queue = Stuck(monkeypatch, "_store"), hesape.connect("memory://")

    async def work() -> None:
        push = asyncio.create_task(queue.aio.push(GRANT, job()))
        await stuck.holds()
        await cancelled(push)
        stuck.go.set()
        await until(lambda: queue.counts().pending == 1)

    asyncio.run(work())


@pytest.fixture
def handed_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of what a driver was handed back, once it was."""
    ids: list[str] = []
    hand_back = MemoryDriver.hand_back

    def noted(driver: MemoryDriver, jobs: Sequence[Job]) -> None:
        hand_back(driver, jobs)
        ids.extend(job.id for job in jobs)

    monkeypatch.setattr(MemoryDriver, "hand_back", noted)
    return ids


def test_what_a_cancelled_pop_claimed_is_handed_back_unspent(
    monkeypatch: pytest.MonkeyPatch, handed_back: list[str]
) -> None:
    stuck, queue = Stuck(monkeypatch, "reserve"), hesape.connect("memory://")
    pushed = queue.push(GRANT, job())

    async def work() -> None:
        pop = asyncio.create_task(queue.aio.pop(lease=3_600))
        await stuck.holds()
        await cancelled(pop)
        stuck.go.set()
        await until(lambda: handed_back == [pushed.id])

    asyncio.run(work())
    [popped] = queue.pop()
    assert (popped.id, popped.attempts) == (pushed.id, 1)


INTERRUPTED = """
import asyncio, contextlib, os, signal, sys
from concurrent.futures import ThreadPoolExecutor
import hesape
from hesape.drivers.sqlite.driver import SqliteDriver

reserve, other = SqliteDriver.reserve, ThreadPoolExecutor(1)

def interrupted(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
    with contextlib.suppress(RuntimeError):  # raised once the interpreter begins no more calls
        while True:
            other.submit(int).result()
    return reserve(*args, **kwargs)

SqliteDriver.reserve = interrupted
with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(hesape.connect(sys.argv[1]).aio.pop(lease=3_600))
"""


def test_what_a_pop_claimed_is_handed_back_though_the_program_was_interrupted(queue: Queue, tmp_path: Path) -> None:
    pushed = queue.push(GRANT, job())
    line = [sys.executable, "-c", INTERRUPTED, f"sqlite:///{tmp_path / 'jobs.db'}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stderr == ""
    [popped] = queue.pop()
    assert (popped.id, popped.attempts) == (pushed.id, 1)


def test_a_cancelled_pop_that_can_not_hand_back_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, queue = Stuck(monkeypatch, "reserve"), hesape.connect("memory://")
    queue.push(GRANT, job())

    def away(*_: object) -> None:
        raise hesape.StoreUnavailableError

    monkeypatch.setattr(MemoryDriver, "hand_back", away)

    async def work() -> None:
        pop = asyncio.create_task(queue.aio.pop())
        await stuck.holds()
        await cancelled(pop)
        stuck.go.set()
        await until(lambda: bool(caplog.messages))

    asyncio.run(work())
    assert caplog.messages == ["1 jobs of a cancelled pop couldn't be handed back: they wait for their lease"]


def test_a_pop_that_ended_or_never_began_hands_nothing_back(
    monkeypatch: pytest.MonkeyPatch, handed_back: list[str]
) -> None:
    stuck, queue = Stuck(monkeypatch, "reserve"), hesape.connect("memory://")
    queue.push(GRANT, job())

    async def work() -> list[list[Job]]:
        pops = [asyncio.create_task(queue.aio.pop(lease=3_600)) for _ in range(THREADS + 1)]
        await stuck.holds(THREADS)
        await cancelled(pops.pop())
        stuck.go.set()
        return await asyncio.gather(*pops)

    assert sum(len(popped) for popped in asyncio.run(work())) == 1
    assert queue.counts().reserved == 1
    assert handed_back == []


def test_a_call_sees_the_context_of_its_caller(queue: Queue) -> None:
    seen: list[Job | None] = []
    queue.notify = lambda event: seen.append(hesape.current_job())
    app = hesape.App()

    @app.handler("mail")
    async def mail(grant: hesape.Grant) -> None:
        await queue.aio.push(grant, Job.new(grant, "mail"))

    with fake(app) as around:
        pushed = around.push(GRANT, job())
        around.drain()
    assert [one.id for one in seen if one is not None] == [pushed.id, pushed.id]


def test_a_connection_that_another_thread_may_not_use_is_refused(queue: Queue, tmp_path: Path) -> None:
    async def push(tx: sqlite3.Connection) -> None:
        await queue.aio.push(GRANT, job(), tx=tx)

    conn = sqlite3.connect(tmp_path / "jobs.db")
    with pytest.raises(hesape.TransactionRefusedError, match="thread"):
        asyncio.run(push(conn))
    conn.close()
    assert queue.counts().size == 0
