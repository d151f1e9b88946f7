"""Whether a worker stays as it is over many jobs: its memory, handles, threads and connections."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape import Job, Queue, system_grant
from hesape_conformance.torture.names import NOOP
from hesape_conformance.torture.report import Outcome
from hesape_conformance.torture.run import opened
from hesape_conformance.torture.work import Work

if TYPE_CHECKING:
    from hesape_conformance.harness import Harness

NAMESPACE: Final = "flat"
GROWTH_KIB: Final = 2_048
"""How much more memory may be resident at the end than after the first measure."""
SHARES: Final = (0.1, 0.4, 0.7, 1.0)
"""After which part of the jobs a measure is taken.

Memory counts from the first on, the rest from the last but one: a pool opens another connection when two threads happen
to need one at once, and keeps it; a leak goes on.
"""
_BULK: Final = 1_000
_WAITING: Final = 5_000
_SINGLE: Final = 50
_SETTLE_S: Final = 2.0
_JOBS_PER_S: Final = 200
"""Slower than this is no pass: the test is bounded in time."""


@attrs.frozen
class Footprint:
    """What a process holds."""

    pid: int
    resident_kib: int
    handles: int
    threads: int
    connections: int

    @classmethod
    def of(cls, pid: int) -> Footprint:
        """Look at a process."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        facts = dict(line.split(":", 1) for line in status.splitlines())
        links = [_target(link) for link in Path(f"/proc/{pid}/fd").iterdir()]
        sockets = sum(link.startswith("socket:") for link in links)
        return cls(pid, int(facts["VmRSS"].split()[0]), len(links), int(facts["Threads"]), sockets)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


Moments = dict[str, dict[str, Footprint]]
"""What the worker and its supervisor held, by when."""


@attrs.frozen(kw_only=True)
class FlatReport:
    """What the processes held."""

    driver: str
    server: str
    jobs: int
    idle_s: float = 0.0
    """How long they had nothing to do after the jobs."""
    took_s: float
    moments: Moments

    @property
    def problems(self) -> list[str]:
        """What grew."""
        return [*_replaced(self.moments), *_others(self.moments), *_memory(self.moments)]

    @property
    def outcome(self) -> Outcome:
        """Passed if nothing grew."""
        return Outcome.FAILED if self.problems else Outcome.PASSED

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**attrs.asdict(self), "problems": self.problems, "outcome": str(self.outcome)}

    def text(self) -> str:
        """For people."""
        idling = f" and {self.idle_s:.0f} s of idling" if self.idle_s else ""
        lines = [f"{self.driver} on {self.server}: {self.outcome}: flat over {self.jobs} jobs{idling}"]
        for moment, prints in self.moments.items():
            for who, one in prints.items():
                lines.append(
                    f"  {moment:<18} {who:<11} {one.resident_kib:>8} KiB, {one.handles} handles,"
                    f" {one.threads} threads, {one.connections} connections"
                )
        return "\n".join([*lines, *(f"  ! {problem}" for problem in self.problems)])


def flat(harness: Harness, jobs: int, tell: Callable[[str], None] = lambda _: None) -> FlatReport:
    """Let one worker process run `jobs` jobs that do nothing; the driver of a started harness."""
    began = time.monotonic()
    with working(harness, NAMESPACE) as (queue, work):
        done = 0
        moments: Moments = {}
        for share in SHARES:
            run(queue, work, int(jobs * share) - done)
            done = int(jobs * share)
            moments[f"after {done} jobs"] = look(work)
            tell(f"{done} jobs")
    return FlatReport(
        driver=harness.driver,
        server=" ".join(harness.server()),
        jobs=done,
        took_s=time.monotonic() - began,
        moments=moments,
    )


@contextmanager
def working(harness: Harness, namespace: str) -> Iterator[tuple[Queue, Work]]:
    """A queue over a fresh namespace, and a worker process that works it."""
    with ExitStack() as stack:
        driver = stack.enter_context(opened(harness, namespace))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hesape-flat-")))
        work = stack.enter_context(Work(folder, harness.settings(namespace), "hesape_conformance.torture.noop:app"))
        work.start()
        work.until(work.workers, "the worker starts")
        yield Queue(driver), work


def run(queue: Queue, work: Work, n: int) -> None:
    """Have `n` jobs done in a row, then a few one by one: an idle worker is woken, and opens what it needs at once."""
    _push(queue, work, n)
    work.until(lambda: queue.counts().size == 0, "the jobs are done", n / _JOBS_PER_S + 60)
    for _ in range(_SINGLE):
        _push(queue, work, 1)
        work.until(lambda: queue.counts().size == 0, "the job is done")


def _push(queue: Queue, work: Work, n: int) -> None:
    grant = system_grant(NOOP, "acme")
    for at in range(0, n, _BULK):
        work.until(lambda: queue.counts().size < _WAITING, "the worker takes jobs")
        queue.bulk(grant, [Job.new(grant, NOOP, {"n": at + number}) for number in range(min(_BULK, n - at))])


def look(work: Work) -> dict[str, Footprint]:
    """What the worker and its supervisor hold, once it has settled; one that is just being replaced is waited for."""
    time.sleep(_SETTLE_S)
    found: dict[str, Footprint] = {}

    def seen() -> bool:
        pids = work.workers()
        if len(pids) == 1:
            with suppress(OSError, KeyError):  # it is gone, or ending and without memory
                found.update(worker=Footprint.of(pids[0]), supervisor=Footprint.of(work.pid))
        return bool(found)

    work.until(seen, "there is exactly one worker")
    return found


def _replaced(moments: Moments) -> list[str]:
    """Whose process isn't the one that it was at first: it died."""
    first, *rest = moments.values()
    return [f"{who}: its process was replaced" for who in first if any(one[who].pid != first[who].pid for one in rest)]


def _memory(moments: Moments) -> list[str]:
    """Who has more memory resident in the end than after the first jobs."""
    first, *_, last = moments.values()
    grown = {who: last[who].resident_kib - first[who].resident_kib for who in last}
    return [f"{who}: {kib} KiB more than after the first jobs" for who, kib in grown.items() if kib > GROWTH_KIB]


def _others(moments: Moments) -> list[str]:
    """What else isn't as it was the last time but one."""
    *_, (before, then), (after, now) = moments.items()
    return [
        f"{who}: {getattr(then[who], what)} {what} {before}, {getattr(now[who], what)} {after}"
        for who in now
        for what in ("handles", "threads", "connections")
        if getattr(now[who], what) != getattr(then[who], what)
    ]
