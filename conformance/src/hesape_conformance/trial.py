"""What a check works with: a fresh namespace of the store, a queue over it, and the store without its driver."""

from __future__ import annotations

import random
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import hesape
from hesape.attributes import Attributes
from hesape.envelope import NO_KEYS, Keys
from hesape.jobs import Job, attached
from hesape.queue import Queue
from hesape.records import Claim, Key, new_token
from hesape_conformance.catalogue import Depth
from hesape_conformance.children import Child
from hesape_conformance.expect import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hesape.config import ConnectionSettings
    from hesape.driver import Capability, Driver, DriverSpec, Fact
    from hesape.grants import Grant
    from hesape.records import Claimed
    from hesape_conformance.harness import Harness, Loan, RawRow, RawStore

N = TypeVar("N", int, float)

TENANT, OTHER_TENANT = "acme", "globex"
NAME = "invoice.send"
READ, RETRY, FORGET = "hesape.failed.read", "hesape.failed.retry", "hesape.failed.forget"


class Trial:
    """One check's own place in the store. What it opens is closed, and its namespaces are dropped, at the end."""

    def __init__(self, harness: Harness, spec: DriverSpec, namespace: str, seed: str, depth: Depth) -> None:
        """Open the driver on a namespace that nobody used."""
        self.harness = harness
        self.spec = spec
        self.namespace = namespace
        self.random = random.Random(seed)
        self.depth = depth
        self._stack = ExitStack()
        self._others = 0
        self.beating: dict[str, Driver] = {}
        self.notes: list[str] = []
        """What the report tells of a check that passed."""
        self._stack.callback(harness.drop, namespace)
        self.raw: RawStore = harness.raw(namespace)
        self.queue = self.another()
        self.driver: Driver = self.queue.driver

    def close(self) -> None:
        """Close every driver and child, and drop every namespace."""
        self._stack.close()

    # The store under test.

    def claims(self, capability: Capability) -> bool:
        """Whether the driver claims it."""
        return capability in self.spec.capabilities

    def declares(self, fact: Fact) -> bool:
        """Whether the driver declares it."""
        return fact in self.spec.facts

    @property
    def settings(self) -> ConnectionSettings:
        """How the namespace is reached."""
        return self.harness.settings(self.namespace)

    def another(self, *, namespace: str | None = None, keys: Keys = NO_KEYS, name: str = "main") -> Queue:
        """A queue over another driver object, by default on the same namespace."""
        driver = self.harness.open(namespace or self.namespace)
        self._stack.callback(driver.close)
        return Queue(driver, name=name, keys=keys)

    def via(self, endpoint: tuple[str, int]) -> Queue:
        """A queue on the same namespace whose driver reaches the server at another address."""
        driver = self.harness.open(self.namespace, endpoint=endpoint)
        self._stack.callback(driver.close)
        return Queue(driver, name="main")

    def signed(self, keys: Keys) -> Queue:
        """A queue over the same driver object, with signing keys."""
        return Queue(self.driver, name="main", keys=keys)

    def elsewhere(self) -> str:
        """Another namespace, fresh."""
        self._others += 1
        name = f"{self.namespace}_{self._others}"
        self._stack.callback(self.harness.drop, name)
        return name

    def without_store(self) -> Queue:
        """A queue over a driver that was never opened: what touches the store fails with an error of Python's own."""
        driver: Driver = object.__new__(type(self.driver))
        return Queue(driver, name="main")

    def child(self, task: str, *arguments: Any, clock_s: float = 0.0) -> Child:
        """Start a process of its own that opens the namespace and runs a task of `tasks`."""
        return self._stack.enter_context(Child(type(self.harness), self.settings, task, arguments, clock_s))

    def lend(self) -> Loan:
        """A connection as an application holds it, until the end of the check."""
        return self._stack.enter_context(self.harness.lend(self.namespace))

    # Grants and jobs.

    def grant(self, tenant: str = TENANT, action: str = NAME) -> Grant:
        """A grant of the system for a tenant and an action."""
        return hesape.system_grant(action, tenant)

    def job(self, payload: object = None, *, tenant: str = TENANT, name: str = NAME, **options: Any) -> Job:
        """A job that nobody pushed yet, under a grant for the action that is its name or `NAME`."""
        return Job.new(self.grant(tenant), name, payload, **options)

    def push(
        self, payload: object = None, *, tenant: str = TENANT, delay: float | timedelta = 0, **options: Any
    ) -> Job:
        """Push a job; returns it as stored."""
        job = self.job(payload, tenant=tenant, **options)
        if delay:
            return self.queue.later(self.grant(tenant), delay, job)
        return self.queue.push(self.grant(tenant), job)

    def push_many(self, n: int, **options: Any) -> list[Job]:
        """Push n jobs in one bulk, their payloads their numbers."""
        return self.queue.bulk(self.grant(), [self.job({"n": i}, **options) for i in range(n)])

    def take(self, queues: str | Sequence[str] = "default", *, lease: float = 60.0, queue: Queue | None = None) -> Job:
        """Pop exactly one job."""
        found = (queue or self.queue).pop(queues, lease=lease)
        assert len(found) == 1, f"expected one job on {queues!r}, found {len(found)}"
        return found[0]

    def taken(self, **options: Any) -> Job:
        """Push a job and pop it."""
        pushed = self.push(**options)
        job = self.take(pushed.queue)
        assert job.id == pushed.id
        return job

    def parked(self, cause: str = "Boom: no\n\ntrace", **options: Any) -> Job:
        """Push a job, pop it and fail it; returns it as popped."""
        job = self.taken(**options)
        job.fail(cause)
        return job

    def lapsed(self, **options: Any) -> Job:
        """Push a job and pop it with a lease that is over when this returns."""
        pushed = self.push(**options)
        job = self.take(pushed.queue, lease=0.03)
        assert job.id == pushed.id
        self.outlive(job)
        return job

    def held_by(self, worker: str, *, ttl: float = 60.0, lease: float = 60.0) -> Key:
        """Push a job and claim it for a worker, whose beats come from a driver object of their own."""
        if worker not in self.beating:
            self.beating[worker] = self.another().driver
            self.beating[worker].beat(worker, int(ttl * 1e6), int(lease * 1e6))
        pushed = self.push()
        claim = Claim(("default",), 1, int(lease * 1e6), new_token(), worker)
        [row] = self.driver.reserve(claim).rows
        assert row.id == pushed.id
        return Key(row.id, claim.token)

    def outlive(self, job: Job) -> None:
        """Wait until a job's lease is over by the store's clock."""
        end = attached(job).reserved_until_us
        assert end is not None
        eventually(lambda: self.driver.now() > end, "the lease ends")

    def until(self, moment_us: int) -> None:
        """Wait until the store's clock is past a moment."""
        eventually(lambda: self.driver.now() > moment_us, "the moment comes")

    def peek(self, queues: Sequence[str] = ("default",)) -> Claimed:
        """What a claim of these queues answers while they hold nothing that is due."""
        found = self.driver.reserve(Claim(tuple(queues), 1, 60_000_000, new_token()))
        assert found.rows == [], "expected nothing due"
        return found

    # The store without its driver.

    def rows(self) -> dict[str, RawRow]:
        """Every stored job by its id."""
        found = self.raw.rows()
        by_id = {row["id"]: row for row in found}
        assert len(by_id) == len(found), f"{len(found)} rows with {len(by_id)} ids"
        return by_id

    def row(self, job: Job | str) -> RawRow:
        """The stored row of a job."""
        job_id = job if isinstance(job, str) else job.id
        found = self.rows()
        assert job_id in found, f"job {job_id} isn't stored"
        return found[job_id]

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Expect a block to change no stored job."""
        before = self.rows()
        yield
        assert self.rows() == before

    def tally(self, queue: str = "default") -> tuple[int, int, int, int]:
        """Pending, delayed, reserved and failed."""
        found = self.queue.counts(queue)
        assert found.size == found.pending + found.delayed + found.reserved
        return found.pending, found.delayed, found.reserved, found.failed

    def times(self, quick: N, default: N, full: N) -> N:
        """How often to repeat something, by the depth of the run."""
        return {Depth.QUICK: quick, Depth.DEFAULT: default, Depth.FULL: full}[self.depth]


def attributes(**values: Any) -> Attributes:
    """Attributes of a job."""
    return Attributes(**values)


def ahead(seconds: float) -> datetime:
    """An aware moment, so many seconds from now."""
    return datetime.now(UTC) + timedelta(seconds=seconds)
