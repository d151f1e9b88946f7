"""What the suite's child processes do. Run as a program, it reads its orders from standard input (see `children`)."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.queue import Queue


def answer(value: Any) -> None:
    """Send one answer."""
    sys.stdout.write(f"={json.dumps(value)}\n")
    sys.stdout.flush()


def go() -> None:
    """Wait to be told to go on."""
    sys.stdin.buffer.readline()


def push(queue: Queue, tenant: str, payloads: list[Any], wanted: str = "default") -> None:
    """Push jobs; answer with their ids."""
    from hesape import Job, system_grant

    grant = system_grant("invoice.send", tenant)
    jobs = [Job.new(grant, "invoice.send", payload, queue=wanted) for payload in payloads]
    answer([queue.push(grant, job).id for job in jobs])
    go()


def hold(queue: Queue, n: int, lease: float, worker: str = "", ttl: float = 60.0) -> None:
    """Take jobs, as a registered worker when one is named, answer with their ids, and wait to be killed."""
    from hesape.records import Claim, new_token

    if worker:
        queue.driver.beat(worker, int(ttl * 1e6), int(lease * 1e6))
    claim = Claim(("default",), n, int(lease * 1e6), new_token(), worker)
    answer([row.id for row in queue.driver.reserve(claim).rows])
    go()
    time.sleep(3600)


def drain(queue: Queue, seconds: float) -> None:
    """Take and delete jobs until none is left; answer with the ids that were deleted."""
    answer("ready")
    go()
    done: list[str] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        jobs = queue.pop(n=3, lease=30)
        if not jobs:
            break
        for job in jobs:
            job.delete()
            done.append(job.id)
    answer(done)


def churn(queue: Queue, lease: float) -> None:
    """Take, settle and push jobs without end, saying each deletion before and after; to be killed at any moment."""
    answer("ready")
    turn = 0
    while True:
        for job in queue.pop(n=2, lease=lease):
            turn += 1
            if turn % 3 == 0:
                job.release(0)
            elif turn % 5 == 0:
                job.fail("Tried: it")
            else:
                answer(job.id)
                job.delete()


def take_locks(queue: Queue, keys: list[str], owner: str, ttl: float) -> None:
    """Take locks; answer which were had."""
    answer([queue.lock(key, ttl, owner=owner).take() for key in keys])
    go()


def wrong_clock(queue: Queue, tenant: str) -> None:
    """With this process's clock wrong, push at once and for later, and take; answer with what was seen."""
    from hesape import Job, system_grant

    grant = system_grant("invoice.send", tenant)
    now_us = queue.driver.now()
    soon = queue.push(grant, Job.new(grant, "invoice.send", {"when": "now"}))
    taken = queue.pop("default", lease=30.0)
    later = queue.later(grant, 3.0, Job.new(grant, "invoice.send", {"when": "later"}))
    answer([now_us, soon.id, [job.id for job in taken], later.id, time.time()])
    go()


def fork(queue: Queue, tenant: str) -> None:
    """Use the driver, fork, use it in both processes; answer with the ids that each pushed, in this process's words."""
    from hesape import Job, system_grant

    grant = system_grant("invoice.send", tenant)

    def pushes(n: int) -> list[str]:
        return [queue.push(grant, Job.new(grant, "invoice.send", {"n": i})).id for i in range(n)]

    before = pushes(1)
    ends = []
    for _ in range(2):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(read)
            try:
                found: Any = [*pushes(10), queue.counts().size]
            except BaseException as error:  # noqa: BLE001 - the parent tells it
                found = f"{type(error).__name__}: {error}"
            os.write(write, json.dumps(found).encode())
            os._exit(0)
        os.close(write)
        ends.append(read)
    mine = pushes(10)
    theirs = [json.loads(_all_of(end)) for end in ends]
    answer([before, mine, theirs])


def _all_of(end: int) -> bytes:
    found = b""
    while part := os.read(end, 65536):
        found += part
    return found


def plugin(name: str) -> None:
    """Load a driver's plugin and nothing else; answer with the top-level modules that were loaded for it."""
    from importlib.metadata import entry_points

    before = set(sys.modules)
    [point] = [point for point in entry_points(group="hesape.drivers") if point.name == name]
    spec = point.load().hesape_register_driver()
    loaded = sorted({module.partition(".")[0] for module in set(sys.modules) - before})
    answer([spec.name, list(spec.contract), sorted(spec.capabilities), sorted(spec.facts), spec.kind, loaded])


def shift_clock(seconds: float) -> None:
    """Let this process believe that it is another time."""
    true_time, true_ns, true_now = time.time, time.time_ns, dt.datetime.now

    class Shifted(dt.datetime):
        __slots__ = ()  # extension modules expect objects of the same size

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            found = true_now(tz) + dt.timedelta(seconds=seconds)
            return cls.fromtimestamp(found.timestamp(), tz)

    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_ns() + int(seconds * 1e9)
    dt.datetime = Shifted  # type: ignore[misc]


TASKS: dict[str, Callable[..., None]] = {
    task.__name__: task for task in (push, hold, drain, churn, take_locks, wrong_clock, fork)
}


def main() -> None:
    """Read the orders and obey."""
    source = sys.stdin.buffer
    sys.path[:], clock_s = pickle.load(source)  # noqa: S301 - from the process that started this one
    if clock_s:
        shift_clock(clock_s)  # before anything is imported that reads it
    task, arguments = pickle.load(source)  # noqa: S301
    if task == "plugin":
        plugin(*arguments)  # before the harness, whose module imports the client
        return
    harness, settings = pickle.load(source)  # noqa: S301
    from hesape.queue import Queue
    from hesape_conformance.harness import NoHost

    driver = harness.spec().open(settings, NoHost())
    TASKS[task](Queue(driver, name="main"), *arguments)
    driver.close()


if __name__ == "__main__":
    main()
