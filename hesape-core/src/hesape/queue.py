"""The one door over a store: pushes are checked and prepared, pops decoded, looks scoped to a tenant."""

from __future__ import annotations

import logging
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from hesape import names, retry, times
from hesape.aio import Aio
from hesape.coordination import Counter, Flag, Lock
from hesape.driver import MAX_BULK_JOBS
from hesape.envelope import NO_KEYS, Keys
from hesape.errors import (
    ArgumentInvalidError,
    BulkTooLargeError,
    HesapeError,
    JobNotFoundError,
    RecordError,
    StoreError,
    TamperedError,
    UnreadableError,
)
from hesape.events import JobQueued, JobQueueing, JobRetried
from hesape.failed import READ, FailedJob, FailedList
from hesape.jobs import DEFAULT_QUEUE, Job, popped, prepare, received
from hesape.operator import Operator
from hesape.records import Claim, Key, new_token

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime, timedelta

    from hesape.attributes import Attributes
    from hesape.driver import Driver
    from hesape.events import Event
    from hesape.grants import Grant
    from hesape.jobs import PreparedJob
    from hesape.records import Claimed, Counts, Row


logger = logging.getLogger(__name__)

MAX_CLAIM: Final = 1_000
"""The most jobs that one claim takes, whatever `n`."""
UNREADABLE_DELAY_US: Final = 60_000_000
"""How long a record rests that this process has no key for (G8)."""
UNREADABLE_FLAG: Final = "hesape.unreadable"
"""The flag that says why records wait for another worker, for `hesape doctor`."""
_UNREADABLE_S: Final = 3_600.0


class Queue:
    """A connection's queues. Threads may share it."""

    def __init__(
        self,
        driver: Driver,
        *,
        name: str = "default",
        keys: Keys = NO_KEYS,
        notify: Callable[[Event], None] | None = None,
    ) -> None:
        """Open the door over `driver`, under its configured `name` and with the application's signing `keys`.

        `notify` is told what happened, where somebody observes.
        """
        self.driver = driver
        self.name = names.check_connection(name)
        self.keys = keys
        self.notify = notify
        self._failed = FailedList(driver, keys)
        self._unreadable = ""
        """Why records rest, as it was logged last."""
        self._flagged_at = -_UNREADABLE_S

    @property
    def notify(self) -> Callable[[Event], None] | None:
        """Who is told what happened, if anybody is; a driver that has something to tell says it here too."""
        return self._notify

    @notify.setter
    def notify(self, notify: Callable[[Event], None] | None) -> None:
        self._notify = notify
        self.driver.notify = notify

    # Push. Each raises what `prepare` and `Driver.store` raise, before anything is written.

    def push(self, grant: Grant, job: Job, *, tx: object = None) -> Job:
        """Store `job` under `grant` and return it as stored (G2, G4).

        With `tx`, a connection lent by the caller, it becomes visible when the caller commits (X1).
        """
        return self._store([prepare(grant, job, keys=self.keys)], tx)[0]

    def push_on(self, grant: Grant, queue: str, job: Job, *, tx: object = None) -> Job:
        """As `push`, on this queue whatever the job says."""
        return self._store([prepare(grant, job, queue=names.check_queue(queue), keys=self.keys)], tx)[0]

    def later(self, grant: Grant, delay: float | timedelta, job: Job, *, tx: object = None) -> Job:
        """As `push`, due after `delay` by the store's clock: seconds or a timedelta, negative means now (T3)."""
        return self._store([prepare(grant, job, delay=delay, later=True, keys=self.keys)], tx)[0]

    def bulk(self, grant: Grant, jobs: Iterable[Job], *, tx: object = None) -> list[Job]:
        """Store up to 10,000 jobs of 16 MiB, all or none, in the order given (B1).

        The error of one job is its own class, with its position in `.index`.
        """
        wanted = list(islice(jobs, MAX_BULK_JOBS + 1))
        if len(wanted) > MAX_BULK_JOBS:
            message = f"{len(wanted)} jobs or more; a bulk holds at most {MAX_BULK_JOBS}"
            raise BulkTooLargeError(message)
        prepared = []
        for index, job in enumerate(wanted):
            try:
                prepared.append(prepare(grant, job, keys=self.keys))
            except HesapeError as error:
                error.index = index
                error.add_note(f"at index {index} of the bulk")
                raise
        return self._store(prepared, tx)

    def push_raw(
        self,
        grant: Grant,
        name: str,
        payload: bytes,
        *,
        queue: str = "",
        run_at: datetime | None = None,
        delay: float | timedelta = 0,
        priority: int | None = None,
        attributes: Attributes | None = None,
        display_name: str = "",
        id: str | uuid.UUID | None = None,  # noqa: A002 - it is the job's id
        tx: object = None,
    ) -> Job:
        """Push bytes that are JSON already, stored unchanged (P2, P3)."""
        job = Job.raw(
            grant,
            name,
            payload,
            queue=queue,
            run_at=run_at,
            priority=priority,
            display_name=display_name,
            id=id,
            **({} if attributes is None else {"attributes": attributes}),
        )
        return self._store([prepare(grant, job, delay=delay, keys=self.keys)], tx)[0]

    def _store(self, prepared: list[PreparedJob], tx: object) -> list[Job]:
        jobs = [handle.job for handle in prepared]
        self._tell(JobQueueing, jobs)
        self.driver.store(prepared, tx=tx)
        self._tell(JobQueued, jobs)
        return jobs

    def _tell(self, event: type[JobQueueing | JobQueued], jobs: Iterable[Job]) -> None:
        if self.notify is not None:
            for job in jobs:
                name = job.resolved_name
                self.notify(event(id=job.id, name=name, queue=job.queue, tenant=job.tenant, connection=self.name))

    def tell_retried(self, ids: Iterable[str], tenant: str) -> None:
        """Tell observers which jobs went back; for core's own."""
        if self.notify is not None:
            for job_id in ids:
                self.notify(JobRetried(id=job_id, connection=self.name, tenant=tenant))

    # Pop.

    def pop(
        self, queues: str | Sequence[str] = DEFAULT_QUEUE, n: int = 1, *, lease: float | timedelta = 60.0
    ) -> list[Job]:
        """Take up to `n` due jobs, each reserved for `lease` by the store's clock; each settles itself (L1).

        Several queues are drained in the order given (O3). A record that can't be read isn't among them: see `receive`.
        """
        wanted = (queues,) if isinstance(queues, str) else tuple(queues)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            message = f"n {n!r}: expected a whole number of at least 1"
            raise ArgumentInvalidError(message)
        lease_us = times.delay_us(lease, "lease")
        if lease_us <= 0 or not wanted:
            message = f"lease {lease!r}, queues {wanted!r}: expected a lease above 0 and at least one queue"
            raise ArgumentInvalidError(message)
        claim = Claim(
            tuple(names.check_queue(queue or DEFAULT_QUEUE) for queue in wanted),
            min(n, MAX_CLAIM),
            lease_us,
            new_token(),
        )
        started = monotonic()
        claimed = retry.insist(lambda repeat: self.driver.reserve(claim._replace(repeat=repeat)))
        return self.receive(claimed, claim, started)

    def receive(self, claimed: Claimed, claim: Claim, started: float) -> list[Job]:
        """The jobs of a claim that was sent at the monotonic time `started`, attached to this connection.

        What was tampered with is parked with the reason; what needs another key or version goes back for a minute (G8).
        """
        expires = started + claim.lease_us / 1_000_000
        members = claimed.members or {}
        jobs = []
        for row in claimed.rows:
            try:
                job = received(row, claim.token, self.keys, expires=expires)
            except RecordError as error:
                self._set_aside(row, claim.token, error)
            else:
                jobs.append(popped(self.driver, members.get(row.id, self.name), job))
        return jobs

    def _set_aside(self, row: Row, token: bytes, error: RecordError) -> None:
        """Park or rest a record; one that the store can't set aside now comes back when its lease ends."""
        try:
            if isinstance(error, UnreadableError):
                self._rest(row, token, error)
            else:
                self._park(row, token, error)
        except StoreError as failure:
            logger.warning("connection %s: record %s isn't set aside yet: %s", self.name, row.id, failure)

    def _park(self, row: Row, token: bytes, error: RecordError) -> None:
        logger.error("connection %s: record %s is parked: %s", self.name, row.id, error)
        reason = f"{type(error).__name__}: {error}"
        key = Key(row.id, token)
        retry.insist(lambda _: self.driver._fail(key, error=reason, exceptions=row.exceptions, tx=None))  # noqa: SLF001 - core's own

    def _rest(self, row: Row, token: bytes, error: UnreadableError) -> None:
        now = monotonic()
        if self._unreadable != str(error):  # one line, however many records say the same
            self._unreadable = str(error)
            self._flagged_at = -_UNREADABLE_S
            logger.error("connection %s: records such as %s rest for a minute: %s", self.name, row.id, error)
        if now - self._flagged_at >= _UNREADABLE_S / 2:  # while records rest the flag doesn't end
            self.flag(UNREADABLE_FLAG, _UNREADABLE_S).set(ascii(self._unreadable)[1:250])
            self._flagged_at = now
        key = Key(row.id, token)
        retry.insist(
            lambda _: self.driver._release(  # noqa: SLF001 - core's own
                key,
                delay_us=UNREADABLE_DELAY_US,
                spent=False,
                error=row.last_error,
                exceptions=row.exceptions,
                tx=None,
            )
        )

    # Look: numbers carry nobody's content and need no grant (G7).

    def counts(self, queue: str = DEFAULT_QUEUE) -> Counts:
        """How many jobs are pending, delayed, reserved and failed (C1)."""
        wanted = names.check_queue(queue)
        return retry.insist(lambda _: self.driver.counts(wanted))

    def oldest_pending(self, queue: str = DEFAULT_QUEUE) -> datetime | None:
        """When the job that waits longest became due, or `None` (C1)."""
        wanted = names.check_queue(queue)
        found = retry.insist(lambda _: self.driver.oldest_pending(wanted))
        return None if found is None else times.from_us(found)

    def queues(self) -> list[str]:
        """The names of the queues that hold anything or are paused."""
        return retry.insist(lambda _: self.driver.queues())

    # Failed jobs of one tenant, the grant's (G7).

    def failed(
        self, grant: Grant, *, queue: str | None = None, limit: int = 50, before: FailedJob | str | None = None
    ) -> list[FailedJob]:
        """Failed jobs, newest first; `before` goes on after a page's last one. Needs `hesape.failed.read` (F1)."""
        grant.check(READ)
        return self._failed.page(grant.tenant, queue=queue, limit=limit, before=before)

    def find(self, grant: Grant, id: str) -> FailedJob:  # noqa: A002
        """One failed job. Needs `hesape.failed.read`; `JobNotFoundError`, `NotFailedError` (F3)."""
        grant.check(READ)
        try:
            return self._failed.find(grant.tenant, id)
        except TamperedError as error:
            message = f"there is no failed job {id} for the tenant {grant.tenant!r}"
            raise JobNotFoundError(message) from error

    def retry(self, grant: Grant, id: str | Sequence[str]) -> None:  # noqa: A002
        """Put failed jobs back as they were pushed, due now; a list all or nothing. Needs `hesape.failed.retry` (F2).

        The stored action and author stay: nothing passes for a push.
        """
        grant.check("hesape.failed.retry")
        try:
            retried = self._failed.retry(grant.tenant, id)
        except TamperedError as error:
            message = f"there is no failed job {id} for the tenant {grant.tenant!r}"
            missing = JobNotFoundError(message)
            missing.index = error.index
            raise missing from error
        self.tell_retried(retried, grant.tenant)

    def forget(self, grant: Grant, id: str | Sequence[str]) -> int:  # noqa: A002
        """Remove failed jobs, a list all or nothing; how many. Needs `hesape.failed.forget` (F4)."""
        grant.check("hesape.failed.forget")
        return self._failed.forget(grant.tenant, id)

    def operator(self) -> Operator:
        """The view over every tenant: it takes no grant, so its name is there to be searched for."""
        return Operator(self)

    # Coordination, on every store's own clock (K1).

    def lock(self, key: str, ttl: float | timedelta, *, owner: str | None = None) -> Lock:
        """A lock that only its owner frees and that ends after `ttl`; a context manager."""
        return Lock(self.driver, key, ttl, owner)

    def counter(self, key: str, ttl: float | timedelta) -> Counter:
        """A counter that starts anew `ttl` after its first increment."""
        return Counter(self.driver, key, ttl)

    def flag(self, key: str, ttl: float | timedelta | None = None) -> Flag:
        """A value that everybody on this connection sees, for `ttl` or until it is erased."""
        return Flag(self.driver, key, ttl)

    @property
    def aio(self) -> Aio:
        """The same methods, awaitable."""
        return Aio(self)

    def close(self) -> None:
        """Close the driver's connections."""
        self.driver.close()

    def __enter__(self) -> Self:
        """Use it in a `with` block that closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        """Name the connection and the driver, never a URL (E4)."""
        return f"<Queue {self.name!r} on {self.driver.spec.name}>"
