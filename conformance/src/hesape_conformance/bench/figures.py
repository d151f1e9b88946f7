"""The figures: push one by one, bulk, drain by `hesape work`, and how soon an idle worker picks a job up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import hesape
from hesape.config import ConnectionSettings
from hesape_conformance.bench.stamps import Seen, Stamps

NAME: Final = "bench.noop"
GRANT: Final = hesape.system_grant(NAME, "acme")
_FILLING: Final = "x" * 170
BULK: Final = 1_000
_PATIENCE_S: Final = 120.0


def payloads(n: int) -> list[dict[str, object]]:
    """`n` payloads of about 200 bytes, each naming its slot."""
    return [{"slot": slot, "filling": _FILLING} for slot in range(n)]


def timed(call: Callable[[], object]) -> float:
    """How many seconds a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def push(queue: hesape.Queue, n: int) -> float:
    """Jobs a second through `Queue.push`, one call each."""
    wanted = payloads(n)

    def run() -> None:
        for payload in wanted:
            queue.push(GRANT, hesape.Job.new(GRANT, NAME, payload))

    return n / timed(run)


def bulk(queue: hesape.Queue, n: int) -> float:
    """Jobs a second through `Queue.bulk`, a thousand a call."""
    wanted = payloads(n)

    def run() -> None:
        for at in range(0, n, BULK):
            queue.bulk(GRANT, [hesape.Job.new(GRANT, NAME, payload) for payload in wanted[at : at + BULK]])

    return n / timed(run)


class Drained(NamedTuple):
    """A drain: its speed between the first and the last start, and what the stamps say."""

    per_s: float
    seen: Seen


def drain(queue: hesape.Queue, settings: ConnectionSettings, folder: Path, n: int, *, processes: int = 1) -> Drained:
    """Stage `n` jobs, then let `hesape work` as users start it (4 slots) take them."""
    bulk(queue, n)
    with _stamped(folder, n) as stamps:
        with _worker(settings, folder, n, "--stop-when-empty", "--processes", str(processes)) as worker:
            deadline = time.monotonic() + _PATIENCE_S
            while stamps.count() < n and time.monotonic() < deadline and worker.poll() is None:
                time.sleep(0.05)
            worker.wait(timeout=60)
        seen = stamps.seen()
    return Drained((seen.ran - 1) / max((seen.last_ns - seen.first_ns) / 1e9, 1e-9), seen)


class Backlog(NamedTuple):
    """Milliseconds of a pop of one job with its deletion, and of a pop that finds nothing; medians."""

    pop_ms: float
    empty_ms: float


def pops(queue: hesape.Queue, n: int = 300) -> Backlog:
    """Pop one at a time among 10,000 due jobs, then where nothing is due."""

    def take_one() -> None:
        queue.pop()[0].delete()

    bulk(queue, 10_000)
    found = [timed(take_one) for _ in range(n)]
    while taken := queue.pop(n=1_000):
        queue.driver.delete_jobs(taken)
    empty = [timed(queue.pop) for _ in range(n)]
    return Backlog(statistics.median(found) * 1e3, statistics.median(empty) * 1e3)


def pile_up(queue: hesape.Queue, scheduled: int, failed: int) -> None:
    """Fill the queue with jobs that aren't due: scheduled for tomorrow, and failed."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    bulk(queue, failed)
    while taken := queue.pop(n=1_000):
        for job in taken:
            job.fail("for the backlog")
    for _ in range(0, scheduled, BULK):
        queue.bulk(GRANT, [hesape.Job.new(GRANT, NAME, {}, run_at=tomorrow) for _ in range(BULK)])


class Latency(NamedTuple):
    """From the push call to the handler's start, an idle worker in another process; milliseconds."""

    p50_ms: float
    p99_ms: float
    idle_cpu: float
    """The part of a core that the idle worker, its supervisor included, takes."""


def latency(queue: hesape.Queue, settings: ConnectionSettings, folder: Path, samples: int) -> Latency:
    """Push one job at a time to an idle worker."""
    with _stamped(folder, samples + 1) as stamps, _worker(settings, folder, samples + 1) as worker:
        _pick_up(queue, stamps, samples)  # the worker is up once it took one
        time.sleep(1)
        idle = _idle_cpu(worker.pid, 3.0)
        found = sorted(_pick_up(queue, stamps, slot) for slot in range(samples))
    return Latency(statistics.median(found), found[min(int(len(found) * 0.99), len(found) - 1)], idle)


def _pick_up(queue: hesape.Queue, stamps: Stamps, slot: int) -> float:
    job = hesape.Job.new(GRANT, NAME, {"slot": slot, "filling": _FILLING})
    pushed = time.monotonic_ns()
    queue.push(GRANT, job)
    deadline = time.monotonic() + 30
    while not (started := stamps.started_ns(slot)):
        if time.monotonic() > deadline:
            message = f"the job in slot {slot} wasn't picked up within 30 s"
            raise TimeoutError(message)
        time.sleep(0.0005)
    time.sleep(0.02 + 0.03 * (slot % 7) / 7)  # not in step with anybody's polling
    return (started - pushed) / 1e6


def _idle_cpu(pid: int, seconds: float) -> float:
    before = _cpu_s(pid)
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / seconds


def _cpu_s(pid: int) -> float:
    """User and system seconds of a process and its living children; 0 where /proc isn't there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        children = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    except OSError:
        return 0.0
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_cpu_s(int(child)) for child in children)


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


@contextlib.contextmanager
def _stamped(folder: Path, slots: int) -> Iterator[Stamps]:
    path = folder / "stamps"
    path.unlink(missing_ok=True)
    stamps = Stamps(path, slots)
    try:
        yield stamps
    finally:
        stamps.close()


@contextlib.contextmanager
def _worker(
    settings: ConnectionSettings, folder: Path, slots: int, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`hesape work` on a configuration file of its own, ended when the block ends."""
    (folder / "hesape.toml").write_text(_toml(settings))
    environment = os.environ | {"HESAPE_BENCH_STAMPS": str(folder / "stamps"), "HESAPE_BENCH_SLOTS": str(slots)}
    command = [sys.executable, "-m", "hesape", "work", "--app", "hesape_conformance.bench.noop:app", *arguments]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield worker
    finally:
        if worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            worker.wait(timeout=60)


def _toml(settings: ConnectionSettings) -> str:
    lines = ["[connections.default]", f"driver = {json.dumps(settings.driver)}"]
    if settings.url:
        lines.append(f"url = {json.dumps(settings.url)}")
    lines += [f"{name} = {json.dumps(value)}" for name, value in settings.options.items()]
    return 'default = "default"\n' + "\n".join(lines) + "\n"


def median(values: Sequence[float]) -> float:
    """The median."""
    return statistics.median(values)
