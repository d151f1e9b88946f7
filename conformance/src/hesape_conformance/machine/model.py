"""What a store must answer, as frozen values and pure functions; nothing here knows a driver.

Time is counted in steps: whatever a step makes due, or lets run out within a moment, is due or over before the next
one begins, since the machine waits for it. So times are always distinguishable, and the answers exact. What a step
leaves for later is an hour away and never comes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

TAMPERED = "TamperedError: "
"""How the last error of a record begins that was parked because somebody changed it."""


class Where(StrEnum):
    """Where a job is."""

    WAITING = "pending"
    LATER = "delayed"
    HELD = "reserved"
    FAILED = "failed"


class When(StrEnum):
    """When a job is to become due, or how long a lease lasts."""

    NOW = "now"
    BRIEFLY = "in a moment"
    FAR = "in an hour"


class Refusal(StrEnum):
    """Why a call was refused, by the code of its error."""

    DUPLICATE = "duplicate-job"
    NOT_FOUND = "job-not-found"
    NOT_FAILED = "not-failed"
    TAMPERED = "tampered"


@attrs.frozen(kw_only=True)
class Wanted:
    """A job as it is pushed: which one, and which of its two contents."""

    job: str
    tenant: str
    queue: str
    content: int = 0
    priority: int = 100
    when: When = When.NOW


@attrs.frozen(kw_only=True)
class Stored:
    """A job that is in the store."""

    job: str
    tenant: str
    queue: str
    content: int
    priority: int
    where: Where
    since: int
    """The step at which it became due, or will have."""
    place: int
    """Its place in the order of pushes."""
    attempts: int = 0
    lapses: int = 0
    exceptions: int = 0
    error: str | None = None
    delivery: int = 0
    """The delivery that holds it, 0 when none does."""
    settled: tuple[int, str] = (0, "")
    """The delivery that released or failed it last, while a repeat of that is recognised."""
    tampered: str = ""
    """The field that was changed behind the driver's back."""
    failed: tuple[int, int] = (0, 0)
    """When it failed: the step, and the place within it."""
    lapsed: bool = False
    """Its lease ran out, and no claim has taken it since: it may lie in the store as if it were held still."""


@attrs.frozen(kw_only=True)
class Claimed:
    """What a claim found, in order: which it delivers, and which it parks."""

    jobs: tuple[Stored, ...]
    parked: tuple[Stored, ...]
    ties: int
    """How often two due jobs of one priority stood in line for it."""
    passed_over: int
    """How many due jobs it left alone because their queue is paused."""


@attrs.frozen(kw_only=True)
class Model:
    """A whole store. Every function returns another one."""

    jobs: Mapping[str, Stored] = attrs.field(factory=dict)
    paused: frozenset[str] = frozenset()
    step: int = 0
    pushes: int = 0
    deliveries: int = 0

    # Looking.

    def select(self, test: Callable[[Stored], bool]) -> list[Stored]:
        """Stored jobs, in the order in which they were first pushed."""
        return sorted(filter(test, self.jobs.values()), key=lambda job: job.place)

    def count(self, queue: str, where: Where) -> int:
        """How many jobs of a queue are there."""
        return sum(job.queue == queue and job.where is where for job in self.jobs.values())

    def queues(self) -> list[str]:
        """The queues that hold a job or are paused."""
        return sorted({job.queue for job in self.jobs.values()} | self.paused)

    def oldest(self, queue: str) -> int | None:
        """The step at which the job that waits longest became due."""
        waiting = self.select(lambda job: job.queue == queue and job.where is Where.WAITING)
        return min((job.since for job in waiting), default=None)

    def current(self, job: str, delivery: int) -> bool:
        """Whether a delivery holds its job."""
        return job in self.jobs and self.jobs[job].delivery == delivery

    def failed(self, tenant: str | None, queue: str | None = None) -> list[Stored]:
        """The failed list, newest first; a tenant sees its own, and none that was tampered with."""
        found = self.select(
            lambda job: (
                job.where is Where.FAILED
                and queue in {None, job.queue}
                and (tenant is None or (job.tenant == tenant and not job.tampered))
            )
        )
        return sorted(found, key=lambda job: job.failed, reverse=True)

    # Changing.

    def next_step(self) -> Model:
        """Go on to the next step; what was to come in a moment has come."""
        return attrs.evolve(self, step=self.step + 1)

    def push(self, wanted: Sequence[Wanted]) -> tuple[Model, tuple[Refusal, tuple[int, ...]] | None, int]:
        """Store jobs, all or none; why not and which are at fault; how many of them were there already."""
        jobs, at_fault, known = dict(self.jobs), [], 0
        for index, want in enumerate(wanted):
            there = jobs.get(want.job)
            if there is None:
                jobs[want.job] = self._stored(want, self.pushes + index + 1)
            elif there.content != want.content or there.tampered == "envelope":
                at_fault.append(index)
            else:
                known += 1
        if at_fault:
            return self, (Refusal.DUPLICATE, tuple(at_fault)), known
        return attrs.evolve(self, jobs=jobs, pushes=self.pushes + len(wanted)), None, known

    def _stored(self, want: Wanted, place: int) -> Stored:
        return Stored(
            job=want.job,
            tenant=want.tenant,
            queue=want.queue,
            content=want.content,
            priority=want.priority,
            where=Where.LATER if want.when is When.FAR else Where.WAITING,
            since=self.step,
            place=place,
        )

    def claim(self, queues: Sequence[str], n: int) -> tuple[Model, Claimed]:
        """Deliver up to n jobs: queue by queue, by priority, by when they became due, by the order of pushes."""
        line: list[Stored] = []
        ties = 0
        for queue in queues:
            due = self.select(lambda job, queue=queue: job.queue == queue and job.where is Where.WAITING)  # type: ignore[misc]
            if queue not in self.paused and len(line) < n:
                line += sorted(due, key=lambda job: (job.priority, job.since, job.place))
                ties += len(due) - len({job.priority for job in due})
        passed_over = sum(self.count(queue, Where.WAITING) for queue in queues if queue in self.paused)
        jobs, taken, parked = dict(self.jobs), [], []
        for number, job in enumerate(line[:n], self.deliveries + 1):
            delivered = attrs.evolve(job, attempts=job.attempts + 1, lapsed=False, settled=(0, ""))
            if job.tampered:
                jobs[job.job] = self._park(delivered, number, TAMPERED, job.exceptions)
                parked.append(jobs[job.job])
            else:
                jobs[job.job] = attrs.evolve(delivered, where=Where.HELD, delivery=number)
                taken.append(jobs[job.job])
        after = attrs.evolve(self, jobs=jobs, deliveries=self.deliveries + len(line[:n]))
        return after, Claimed(jobs=tuple(taken), parked=tuple(parked), ties=ties, passed_over=passed_over)

    def _park(self, job: Stored, number: int, error: str | None, exceptions: int) -> Stored:
        return attrs.evolve(
            job,
            where=Where.FAILED,
            delivery=0,
            lapses=0,
            error=error,
            exceptions=exceptions,
            settled=(number, "fail"),
            failed=(self.step, number),
        )

    def lapse(self, jobs: Iterable[str]) -> Model:
        """Let leases run out: the jobs are due again, in the same place."""
        return self._changed(
            attrs.evolve(self.jobs[job], where=Where.WAITING, delivery=0, lapses=self.jobs[job].lapses + 1, lapsed=True)
            for job in jobs
        )

    def delete(self, keys: Sequence[tuple[str, int]]) -> tuple[Model, list[tuple[str, int]]]:
        """Remove the jobs of current deliveries; the others are lost."""
        gone = {job for job, delivery in keys if self.current(job, delivery)}
        lost = [key for key in keys if not self.current(*key)]
        return self._without(gone), lost

    def release(
        self, job: str, delivery: int, when: When, *, spent: bool, error: str | None, exceptions: int
    ) -> tuple[Model, bool]:
        """Put a job back; whether that was right, because it is held or was released by this very delivery."""
        if not self.current(job, delivery):
            there = self.jobs.get(job)
            waits = there is not None and there.where in {Where.WAITING, Where.LATER}
            return self, there is not None and waits and there.settled == (delivery, "release")
        there = self.jobs[job]
        back = attrs.evolve(
            there,
            where=Where.LATER if when is When.FAR else Where.WAITING,
            since=self.step,
            attempts=there.attempts - (not spent),
            lapses=0,
            error=error,
            exceptions=exceptions,
            delivery=0,
            settled=(delivery, "release"),
        )
        return self._changed([back]), True

    def fail(self, job: str, delivery: int, *, error: str | None, exceptions: int) -> tuple[Model, bool]:
        """Park a job; whether that was right, because it is held or was failed by this very delivery."""
        there = self.jobs.get(job)
        if there is None or not self.current(job, delivery):
            failed = there is not None and there.where is Where.FAILED
            return self, there is not None and failed and there.settled == (delivery, "fail")
        return self._changed([self._park(there, delivery, error, exceptions)]), True

    def hand_back(self, keys: Sequence[tuple[str, int]]) -> Model:
        """Put back what never started, its attempt and its place given back; leave other jobs alone."""
        return self._changed(
            attrs.evolve(self.jobs[job], where=Where.WAITING, delivery=0, attempts=self.jobs[job].attempts - 1)
            for job, delivery in keys
            if self.current(job, delivery)
        )

    def pause(self, queue: str, *, on: bool) -> Model:
        """Let no claim take from a queue, or let it again."""
        return attrs.evolve(self, paused=self.paused | {queue} if on else self.paused - {queue})

    def clear(self, queue: str) -> tuple[Model, int]:
        """Remove all of a queue but the failed jobs; how many."""
        gone = {job.job for job in self.jobs.values() if job.queue == queue and job.where is not Where.FAILED}
        return self._without(gone), len(gone)

    def repair(self, tenant: str | None, jobs: Sequence[str]) -> tuple[Refusal, int] | None:
        """Why a call on failed jobs is refused and which is at fault; `None` when it isn't."""
        for index, job in enumerate(jobs):
            there = self.jobs.get(job)
            if there is None or tenant not in {None, there.tenant}:
                return Refusal.NOT_FOUND, index
            if there.where is not Where.FAILED:
                return Refusal.NOT_FAILED, index
        return None

    def retry(self, tenant: str | None, jobs: Sequence[str]) -> tuple[Model, tuple[Refusal, int] | None]:
        """Put failed jobs back, all or none, as they were pushed and due now; none that was tampered with."""
        for index, job in enumerate(jobs):
            if refused := self.repair(tenant, [job]):
                return self, (refused[0], index)
            if self.jobs[job].tampered:
                return self, (Refusal.TAMPERED if tenant is None else Refusal.NOT_FOUND, index)
        return self._changed(
            attrs.evolve(
                self.jobs[job],
                where=Where.WAITING,
                since=self.step,
                attempts=0,
                exceptions=0,
                error=None,
                settled=(0, ""),
            )
            for job in jobs
        ), None

    def forget(self, tenant: str | None, jobs: Sequence[str]) -> tuple[Model, tuple[Refusal, int] | None]:
        """Remove failed jobs, all or none."""
        refused = self.repair(tenant, jobs)
        return (self, refused) if refused else (self._without(set(jobs)), None)

    def flush(self) -> tuple[Model, int]:
        """Remove every failed job; how many."""
        gone = {job.job for job in self.jobs.values() if job.where is Where.FAILED}
        return self._without(gone), len(gone)

    def tamper(self, job: str, field: str) -> Model:
        """Change a stored field behind the driver's back; an envelope that was changed stays the gravest."""
        worst = "envelope" if "envelope" in {field, self.jobs[job].tampered} else field
        return self._changed([attrs.evolve(self.jobs[job], tampered=worst)])

    def _changed(self, jobs: Iterable[Stored]) -> Model:
        return attrs.evolve(self, jobs={**self.jobs, **{job.job: job for job in jobs}})

    def _without(self, gone: set[str]) -> Model:
        return attrs.evolve(self, jobs={name: job for name, job in self.jobs.items() if name not in gone})
