"""What is measured on a driver: each figure by a function that takes an empty store and leaves it as it likes.

A job that isn't there afterwards, or is still there, is an error: a figure with lost jobs is no figure.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Final, NamedTuple

import hesape
from hesape.config import ConnectionSettings
from hesape_conformance.bench import working
from hesape_conformance.bench.stamps import Seen, Stamps

NOOP: Final = "bench.noop"
BUSY: Final = "bench.busy"
STUCK: Final = "bench.stuck"
GRANTS: Final = {name: hesape.system_grant(name, "acme") for name in (NOOP, BUSY, STUCK)}
BULK: Final = 1_000
SLOTS: Final = 4
"""Handlers at the same time in a worker process, as it comes."""
_FILLING: Final = "x" * 170
_WARM_UP: Final = 20
_STAGED: Final = 50_000
"""Payloads that are held in memory at once."""
_SLOWEST_PER_S: Final = 100
"""A drain below this isn't waited for."""


class LostError(Exception):
    """Jobs are missing or were left over; the message says what was found."""

    def __init__(self, message: str, jobs: int) -> None:
        """Such a message, about so many jobs."""
        super().__init__(message)
        self.jobs = jobs


class Place(NamedTuple):
    """An empty store, its settings, and a folder for what a worker needs."""

    queue: hesape.Queue
    settings: ConnectionSettings
    folder: Path


def payloads(n: int, first: int = 0) -> list[dict[str, object]]:
    """`n` payloads of about 200 bytes, each naming its slot."""
    return [{"slot": slot, "filling": _FILLING} for slot in range(first, first + n)]


def timed(call: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def push(queue: hesape.Queue, n: int) -> float:
    """Jobs a second through `Queue.push`, one call each."""
    grant = GRANTS[NOOP]

    def run(wanted: Sequence[object]) -> None:
        for payload in wanted:
            queue.push(grant, hesape.Job.new(grant, NOOP, payload))

    run(payloads(_WARM_UP))
    found = n / timed(lambda: run(payloads(n)))
    expect(queue, size=n + _WARM_UP)
    return found


def bulk(queue: hesape.Queue, n: int, name: str = NOOP) -> float:
    """Jobs a second through `Queue.bulk`, a thousand a call."""
    wanted = payloads(n)
    found = n / timed(lambda: store(queue, wanted, name))
    expect(queue, size=n)
    return found


def store(queue: hesape.Queue, wanted: Sequence[object], name: str = NOOP) -> None:
    """Store a job for each payload, a thousand a call."""
    grant = GRANTS[name]
    for at in range(0, len(wanted), BULK):
        queue.bulk(grant, [hesape.Job.new(grant, name, payload) for payload in wanted[at : at + BULK]])


def expect(queue: hesape.Queue, **counts: int) -> None:
    """Refuse a store whose `Counts` differ from these."""
    found = queue.counts()
    for kind, n in counts.items():
        if (there := getattr(found, kind)) != n:
            message = f"{n} jobs were expected in the store ({kind}), {there} are there"
            raise LostError(message, abs(n - there))


def drain(place: Place, n: int, *, processes: int = 1, name: str = NOOP) -> Seen:
    """Stage `n` jobs, then let `hesape work` as users start it take them; what the stamps say."""
    bulk(place.queue, n, name)
    return work_off(place, n, processes=processes)


def work_off(place: Place, n: int, *, processes: int = 1) -> Seen:
    """Let `hesape work` take the `n` jobs that are staged."""
    with working.stamped(place.folder, n) as stamps:
        arguments = ("--stop-when-empty", "--processes", str(processes))
        with working.worker(place.settings, place.folder, n, *arguments) as worker:
            try:
                worker.wait(timeout=60 + n / _SLOWEST_PER_S)
            except TimeoutExpired as error:
                ran = stamps.seen().ran
                message = f"{ran} of {n} jobs ran in {error.timeout:.0f} s: {working.said(place.folder)}"
                raise LostError(message, n - ran) from error
        seen = stamps.seen()
    if not seen.lost:
        expect(place.queue, size=0)
    return seen


class Pops(NamedTuple):
    """Milliseconds of a pop of one job with its deletion, and of a pop that finds nothing; medians."""

    pop_ms: float
    empty_ms: float


def pops(queue: hesape.Queue, due: int, n: int = 300) -> Pops:
    """Pop one at a time among `due` jobs, then where nothing is due."""

    def take_one() -> None:
        queue.pop()[0].delete()

    store(queue, payloads(due))
    found = [timed(take_one) for _ in range(min(n, due))]
    while taken := queue.pop(n=BULK):
        queue.driver.delete_jobs(taken)
    empty = [timed(queue.pop) for _ in range(n)]
    return Pops(statistics.median(found) * 1e3, statistics.median(empty) * 1e3)


def pile_up(queue: hesape.Queue, *, scheduled: int = 0, failed: int = 0) -> None:
    """Store jobs that aren't due, through the driver: scheduled for tomorrow, and failed."""
    grant = GRANTS[NOOP]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for at in range(0, scheduled, BULK):
        wanted = range(min(BULK, scheduled - at))
        queue.bulk(grant, [hesape.Job.new(grant, NOOP, {}, run_at=tomorrow) for _ in wanted])
    store(queue, payloads(failed))
    while taken := queue.pop(n=BULK):
        for job in taken:
            job.fail("for the backlog")


class Latency(NamedTuple):
    """From the push call to the handler's start, an idle worker in another process; milliseconds."""

    p50_ms: float
    p99_ms: float
    idle_percent: float
    """Of one core that the idle worker takes, its supervisor included."""
    seen: Seen


def latency(place: Place, samples: int) -> Latency:
    """Push one job at a time to an idle worker."""
    with working.stamped(place.folder, samples + 1) as stamps:
        with working.worker(place.settings, place.folder, samples + 1) as worker:
            _pick_up(place.queue, stamps, samples)  # the worker is up once it took one
            time.sleep(1)
            idle = _idle_percent(worker.pid, 3.0)
            found = sorted(_pick_up(place.queue, stamps, slot) for slot in range(samples))
        seen = stamps.seen()
    expect(place.queue, size=0)
    return Latency(statistics.median(found), percentile(found, 0.99), idle, seen)


def percentile(ordered: Sequence[float], part: float) -> float:
    """The value which that part of the ordered ones doesn't exceed."""
    return ordered[max(math.ceil(len(ordered) * part) - 1, 0)]


def _pick_up(queue: hesape.Queue, stamps: Stamps, slot: int) -> float:
    grant = GRANTS[NOOP]
    job = hesape.Job.new(grant, NOOP, {"slot": slot, "filling": _FILLING})
    pushed = time.monotonic_ns()
    queue.push(grant, job)
    started = _await_start(stamps, slot)
    time.sleep(0.02 + 0.03 * (slot % 7) / 7)  # not in step with anybody's polling
    return (started - pushed) / 1e6


def _await_start(stamps: Stamps, slot: int, starts: int = 1) -> int:
    """Wait for a start of the job in `slot`; when the first was, in nanoseconds."""
    deadline = time.monotonic() + 60
    while stamps.starts(slot) < starts:
        if time.monotonic() > deadline:
            message = f"the job in slot {slot} started {stamps.starts(slot)} times within 60 s, not {starts}"
            raise LostError(message, 1)
        time.sleep(0.0005)
    return stamps.started_ns(slot)


def _idle_percent(pid: int, seconds: float) -> float:
    before = working.cpu_s(pid)
    time.sleep(seconds)
    return (working.cpu_s(pid) - before) / seconds * 100


class Recovery(NamedTuple):
    """Seconds until the job ran again; what the stamps say, in which the start that was killed doesn't count."""

    seconds: float
    seen: Seen


def recovery(place: Place) -> Recovery:
    """Seconds from `kill -9` of a worker, with all its processes, until its job runs again in a fresh one."""
    grant = GRANTS[STUCK]
    place.queue.push(grant, hesape.Job.new(grant, STUCK, payloads(1)[0]))
    with working.stamped(place.folder, 1) as stamps:
        with working.worker(place.settings, place.folder, 1) as worker:
            _await_start(stamps, 0)
            time.sleep(1)
            killed = time.monotonic()
            working.kill(worker)
        with working.worker(place.settings, place.folder, 1):
            _await_start(stamps, 0, starts=2)
            seconds = time.monotonic() - killed
        seen = stamps.seen()._replace(doubled=int(stamps.starts(0) > 2))
    expect(place.queue, size=0)
    return Recovery(seconds, seen)


class Memory(NamedTuple):
    """A long drain: what the stamps say, and the MiB of the worker after a tenth of the jobs and after all."""

    seen: Seen
    before_mib: float
    after_mib: float


def long_drain(place: Place, n: int) -> Memory:
    """Stage `n` jobs, and let one worker process take them all."""
    for first in range(0, n, _STAGED):
        store(place.queue, payloads(min(_STAGED, n - first), first))
    with (
        working.stamped(place.folder, n) as stamps,
        working.worker(place.settings, place.folder, n) as worker,
    ):
        deadline = time.monotonic() + 60 + n / _SLOWEST_PER_S
        memory = []
        for wanted in (n // 10, n):
            while not stamps.reached(wanted) and time.monotonic() < deadline and worker.poll() is None:
                time.sleep(0.1)
            if worker.poll() is not None:
                message = f"the worker ended with code {worker.returncode}: {working.said(place.folder)}"
                raise LostError(message, stamps.seen().lost)
            memory.append(working.memory_mib(worker.pid))
        while place.queue.counts().size and time.monotonic() < deadline:
            time.sleep(0.1)
        seen = stamps.seen()
    if not seen.lost:
        expect(place.queue, size=0)
    return Memory(seen, *memory)
