"""What one cut is made on: a store with a few jobs in known states, and how the store is read without the relay."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from hesape.jobs import key_of, prepare, prepared_row
from hesape.records import Claim, Key, new_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hesape.driver import Driver
    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape.records import NewRow
    from hesape_conformance.harness import RawRow
    from hesape_conformance.trial import Trial

EMPTY: Final = "no jobs"
WORKER: Final = "worker"
LEASE_US: Final = 600_000_000
LOCK, OWNER = "lock:" + "5" * 64, "somebody"


class Scene:
    """The trial's store, which is empty, and what a test puts there."""

    def __init__(self, trial: Trial, queue: Queue) -> None:
        """Pop over `queue`, and do everything else over the trial's own driver."""
        self.trial = trial
        self.queue = queue
        self.driver: Driver = trial.driver
        self.fresh: list[Job] = []
        self.held: list[Job] = []
        self.failed: list[Job] = []
        self.claim = Claim(("default",), 2, LEASE_US, new_token())
        self.namespace = trial.namespace

    def empty(self) -> None:
        """Leave nothing in the store: every row can still be written, so nobody holds a lock on one."""
        operator = self.trial.queue.operator()
        for queue in set(self.driver.queues()):
            operator.clear(queue)
            operator.resume(queue)
        operator.flush()
        for worker in self.driver.workers():
            self.driver.retire(worker.worker)
        self.driver.unlock(LOCK, OWNER)
        self.driver.erase_flag(LOCK)
        left = (self.jobs(), self.trial.raw.entries())
        assert left == (EMPTY, 0), f"after everything was removed there are {left[0]} and {left[1]} entries"

    # Putting jobs there.

    def new(self, n: int, size: int = 10) -> list[Job]:
        """Make jobs that nobody pushed yet."""
        self.fresh = [self.trial.job("x" * size) for _ in range(n)]
        return self.fresh

    def rows(self) -> list[NewRow]:
        """The new jobs as a store receives them."""
        grant = self.trial.grant()
        return [prepared_row(prepare(grant, job)) for job in self.fresh]

    def ready(self, n: int) -> None:
        """Push n jobs."""
        self.trial.push_many(n)

    def reserved(self, n: int, beside: int = 0) -> None:
        """Push n jobs and pop them; leave some others."""
        self.ready(n + beside)
        self.held = self.queue.pop(n=n, lease=LEASE_US / 1e6)
        assert len(self.held) == n

    def parked(self, n: int) -> None:
        """Push n jobs and fail them."""
        self.ready(n)
        self.failed = self.trial.queue.pop(n=n)
        for job in self.failed:
            job.fail("Boom: before")

    def mixed(self) -> None:
        """One job in each state."""
        self.reserved(1)
        self.parked(1)
        self.ready(1)
        self.trial.push(delay=3_600)

    def dying(self) -> None:
        """Let a worker that is dead hold a job."""
        self.ready(1)
        worker = self.trial.beating.setdefault(WORKER, self.trial.another().driver)
        worker.beat(WORKER, 1_000, LEASE_US)
        claim = Claim(("default",), 1, LEASE_US, new_token(), WORKER)
        assert len(self.driver.reserve(claim).rows) == 1
        self.trial.until(self.driver.now() + 1_000)

    def keys(self) -> list[Key]:
        """The keys of the held jobs."""
        return [key_of(job) for job in self.held]

    def failed_ids(self) -> list[str]:
        """The ids of the failed jobs."""
        return [job.id for job in self.failed]

    # Reading the store.

    def jobs(self) -> str:
        """What is stored: how many jobs in each state with so many attempts, and the error of those that have one."""
        return described(self.trial.rows())

    def entries(self) -> str:
        """What is kept beside the jobs."""
        return f"{self.trial.raw.entries()} entries"

    def paused(self) -> str:
        """Whether the queue is paused."""
        return "paused" if "default" in self.driver.paused() else "running"

    def registered(self) -> str:
        """Which workers are registered."""
        return ", ".join(found.worker for found in self.driver.workers()) or "nobody"

    def version(self) -> str:
        """How far the schema is."""
        number = self.elsewhere().schema_version()
        latest = max((step.number for step in self.driver.migrations()), default=0)
        return "none" if number == 0 else "latest" if number == latest else "some"

    # A store without any tables.

    def bare(self) -> None:
        """Go to a namespace that nobody used."""
        self.namespace = self.trial.elsewhere()
        self._elsewhere: Driver | None = None

    def elsewhere(self) -> Driver:
        """A driver on that namespace, without the relay."""
        if self._elsewhere is None:
            self._elsewhere = self.trial.another(namespace=self.namespace).driver
        return self._elsewhere


def described(rows: Mapping[str, RawRow]) -> str:
    """Stored jobs, counted by what is alike."""
    return _counted(
        f"{row['state']} after {row['attempts']}"
        + (f" ({row['last_error'].split(':')[0]})" if row["last_error"] else "")
        for row in rows.values()
    )


def _counted(words: Iterable[str]) -> str:
    counted: Any = sorted(Counter(words).items())
    return ", ".join(f"{count} {word}" for word, count in counted) or EMPTY
