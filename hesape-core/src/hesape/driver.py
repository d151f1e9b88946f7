"""The contract of a store: what a driver implements, and the little that core does above it.

A driver is a class derived from `Driver` that implements the abstract methods, and a `DriverSpec` that says what it
claims. The methods come in four groups: deliver, look, repair, coordinate. For all of them:

- **One attempt.** A method makes one attempt and raises what it knows: `StoreUnavailableError` (surely nothing was
  written), `StoreBusyError` (rolled back because of a conflict), `StoreRefusedError` (full, read-only, damaged: nothing
  was written), `OutcomeUnknownError` (sent, and no answer). Core repeats (`hesape.retry`), the driver never does,
  except to replace a pooled connection that it found dead before it sent anything on it. No error of a client library
  escapes.
- **One atomic step.** Each call is all or nothing in the store, whatever dies between any two bytes (L6).
- **The store's clock** decides what is due and which lease ran out (T2). Times are microseconds since the epoch.
- **Threads and forks.** One object serves many threads, and opens its own connections in a forked child (E2).
- **Nothing but bytes.** Envelopes are stored and returned byte for byte; no driver looks into one (P3).

A job is in one of four states: *ready* (due, unreserved), *scheduled* (not due), *reserved*, *failed*. A delivery is
current while the row is reserved, under its token, and its lease hasn't run out by the store's clock; everything that
settles applies only then, and says so otherwise (L4). Ready jobs are handed out by priority, then due time, then the
order in which they were stored (O1). A released or failed row keeps the token of its last delivery until the next one,
so that a repeated `_release` or `_fail` is recognised; promotion of an expired lease and handing back clear it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeVar, final

import attrs

from hesape import retry, times
from hesape.error_text import error_text
from hesape.errors import (
    AlreadyQueuedError,
    BulkTooLargeError,
    DuplicateJobError,
    ForgedError,
    HesapeError,
    UnsupportedError,
)
from hesape.jobs import attached, key_of, lease_lost, prepared_row
from hesape.records import Claim, new_token

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from hesape.config import ConnectionSettings
    from hesape.events import Event
    from hesape.jobs import Job, PreparedJob
    from hesape.records import Claimed, Counts, Finding, Key, Migration, NewRow, Row, WorkerRow

_E = TypeVar("_E", bound=HesapeError)

CONTRACT: Final = (1, 0)
"""The version of this interface. A driver of another major version is refused with both numbers (N3)."""
MAX_BULK_JOBS: Final = 10_000
MAX_BULK_BYTES: Final = 16 * 1024 * 1024
PROMOTED_AT_ONCE: Final = 1_000
"""How many scheduled jobs and how many expired leases one claim makes ready before it claims; when it found as many, it
repeats that first, so that no priority waits behind it (O1)."""
NOBODYS_QUEUE: Final = "nobody's queue"
"""No push can have this name: a claim on it alone finds what is reserved under its token, and nothing else."""
_RESERVED_NAMES: Final = frozenset(
    ("push", "push_on", "push_raw", "later", "bulk", "store", "authorized", "prepare"),
)


class Capability(StrEnum):
    """Calls that not every store offers. A claimed one is tested, an unclaimed one refuses before any I/O."""

    TRANSACTIONS = "transactions"
    """`tx=` joins a connection that the caller lends (X1)."""
    NOTIFICATIONS = "notifications"
    """`wait` returns early when a job becomes due, whoever pushed it (W1); without, it sleeps."""
    SESSION_LIVENESS = "session_liveness"
    """The store itself tells when a worker is dead, without waiting for its beats to run out."""


class Fact(StrEnum):
    """What a store is. A rule that needs an undeclared fact is outside its declared facts."""

    DURABLE = "durable"
    """A push that returned survives a crash of every process."""
    MULTI_PROCESS = "multi_process"
    NETWORKED = "networked"


class Host(Protocol):
    """What the application offers to a driver that it opens."""

    def run(self, job: Job) -> None:
        """Run a job's handler here and now, for local drivers."""

    def driver(self, connection: str) -> Driver:
        """The driver of another configured connection, for composites."""


@attrs.frozen(kw_only=True)
class DriverSpec:
    """What a plugin says about its driver. Making one opens nothing and imports no client library."""

    name: str
    """The driver's name, which is its entry point's and its URL scheme."""
    contract: tuple[int, int]
    """The `CONTRACT` that it was written for."""
    summary: str
    """One line for `hesape drivers`."""
    open: Callable[[ConnectionSettings, Host], Driver] = attrs.field(repr=False)
    """Open a driver for a connection's settings; connects lazily. `ConfigError` for settings it can't use."""
    capabilities: frozenset[Capability] = frozenset()
    facts: frozenset[Fact] = frozenset()
    kind: Literal["store", "local"] = "store"
    """A local driver runs or drops its jobs and keeps nothing (N5)."""


class Driver(ABC):
    """One store of jobs. See the module for what holds for every method."""

    spec: ClassVar[DriverSpec]
    notify: Callable[[Event], None] | None = None
    """Set by the queue above it: whom a composite tells what happened. Stores have nothing to tell."""

    def __init_subclass__(cls, **kwargs: object) -> None:
        """Refuse a driver that opens a door of its own beside `Queue` (G6)."""
        super().__init_subclass__(**kwargs)
        for name in sorted(_RESERVED_NAMES & vars(cls).keys()):
            message = (
                f"{cls.__name__} defines {name}(): a driver implements _store(); pushing and its checks are core's"
            )
            raise ForgedError(message)

    # Deliver: what core adds above the store.

    @final
    def store(self, jobs: Sequence[PreparedJob], *, tx: object = None) -> None:
        """Store prepared jobs, all or nothing (G6, B1).

        Anything but a `PreparedJob` raises `ForgedError` before any I/O, whoever calls. Outside a transaction the call
        is repeated while the store can't be reached or its outcome is unknown: the ids make that harmless (I2). A job
        that is at fault raises its own error with `.index`.
        """
        rows = [prepared_row(job) for job in jobs]
        self.check_transaction(tx)
        _check_bulk(rows)
        if tx is not None or self.spec.kind == "local":  # what a local driver runs isn't run twice
            self._store(rows, tx)
        elif rows:
            retry.insist(lambda _: self._store(rows, None))

    @final
    def delete_jobs(self, jobs: Sequence[Job], *, tx: object = None) -> list[Job]:
        """Remove finished jobs in one step; return those whose delivery was no longer current (S3)."""
        self.check_transaction(tx)
        keys = list(dict.fromkeys(key_of(job) for job in jobs))  # of a pair a driver would call the second lost
        if tx is not None:
            lost = set(self._delete(keys, repeat=False, tx=tx))
        else:
            lost = set(retry.insist(lambda repeat: self._delete(keys, repeat=repeat, tx=None), until=_lease_end(jobs)))
        return [job for job in jobs if key_of(job) in lost]

    @final
    def release_job(self, job: Job, delay: float | timedelta = 0, *, spent: bool = True, tx: object = None) -> None:
        """Put a job back with its `last_error` and `exceptions`, due after `delay` (S1)."""
        self.check_transaction(tx)
        key, wait_us, error = key_of(job), times.delay_us(delay), _stored_error(job.last_error)

        def release(_: bool) -> bool:  # noqa: FBT001 - the shape of retry.insist
            return self._release(key, delay_us=wait_us, spent=spent, error=error, exceptions=job.exceptions, tx=tx)

        if not (release(False) if tx is not None else retry.insist(release, until=_lease_end([job]))):  # noqa: FBT003
            raise lease_lost(job)

    @final
    def fail_job(self, job: Job, cause: BaseException | str | None = None, *, tx: object = None) -> None:
        """Park a job with `exceptions` and the text of `cause`; `None` keeps its `last_error` (S1, P4)."""
        self.check_transaction(tx)
        if cause is not None:
            job.last_error = error_text(cause)
        key, error = key_of(job), _stored_error(job.last_error)

        def fail(_: bool) -> bool:  # noqa: FBT001
            return self._fail(key, error=error, exceptions=job.exceptions, tx=tx)

        if not (fail(False) if tx is not None else retry.insist(fail, until=_lease_end([job]))):  # noqa: FBT003
            raise lease_lost(job)

    @final
    def extend(self, jobs: Sequence[Job], lease: float | timedelta) -> tuple[list[datetime], list[Job]]:
        """Move deadlines to the later of themselves and now + `lease`; those of the current jobs, and the lost (L5)."""
        ahead_us = times.delay_us(lease, "lease")
        keys = [key_of(job) for job in jobs]
        found = retry.insist(lambda _: self._extend(keys, ahead_us), until=_lease_end(jobs))
        deadlines, lost = [], []
        for job, deadline in zip(jobs, found, strict=True):
            if deadline is None:
                lost.append(job)
            else:
                deadlines.append(times.from_us(deadline))
                delivery = attached(job)
                delivery.reserved_until_us = deadline
                delivery.expires = max(delivery.expires, monotonic() + ahead_us / 1_000_000)
        return deadlines, lost

    @final
    def hand_back(self, jobs: Sequence[Job]) -> None:
        """Put back jobs that never started, with their attempt and their place in line (L8)."""
        keys = [key_of(job) for job in jobs]
        if keys:
            retry.insist(lambda _: self._hand_back(keys), until=_lease_end(jobs))

    @final
    def check_transaction(self, tx: object) -> None:
        """Refuse `tx=` before any I/O when the driver doesn't claim transactions (X1)."""
        if tx is not None and Capability.TRANSACTIONS not in self.spec.capabilities:
            message = f"the driver {self.spec.name!r} can't join a transaction; push without tx=, or use one that can"
            raise UnsupportedError(message)

    # Deliver: what a driver implements.

    @abstractmethod
    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        """Store rows in the order given, all or nothing, in a bounded number of round trips.

        A row whose id is stored already, live or failed: with `envelope.same_content` nothing new is stored for it,
        with other content, or for another tenant, raise `already_stored(index)` and store nothing of the call. The
        same holds for an id that the call repeats itself. A row with `unique` holds that key for its time in the same
        step, unless its time isn't over: `already_queued(index)`, also for the same id once that job is settled (I2).
        Notify waiters after the commit, once per queue.

        With `tx`, a connection lent by the caller, the rows become visible when the caller commits. Never commit, roll
        back, retry or change a setting of it. `TransactionRefusedError` names a connection that is in autocommit
        outside a transaction, belongs to another database (by the store's random id), or is of an unknown kind (X1).
        """

    @abstractmethod
    def reserve(self, claim: Claim) -> Claimed:
        """Delete `claim.done`, promote what became due, and claim up to `n` jobs: one atomic step (L6, L7).

        In this order: delete those of `done` that are current, the others are `lost` (with `repeat`, an absent row
        counts as deleted). Rows that are reserved under `claim.token` already are the answer, as they are, and nothing
        is claimed. Otherwise promote up to `PROMOTED_AT_ONCE` scheduled jobs that became due and as many expired leases
        (lapses + 1, token cleared, due time and place kept), of the claim's queues, again while it found as many; then
        claim from the queues in order, skipping paused ones: attempts + 1, the token, the worker, the end of the lease.
        Poppers never wait for each other nor for rows that somebody else has locked. Bounded by `n` under any plan.
        Called again by core with `repeat` after an unknown outcome.
        """

    @abstractmethod
    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        """Delete the current ones of `keys` and return the others; with `repeat` an absent row counts as deleted."""

    @abstractmethod
    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        """Make a current delivery due at now + `delay_us`, and store its error and exceptions; lapses become 0.

        Unless `spent`, the attempt is taken back. True when it was current, or is released under this very token
        already, so that a repeat changes nothing; else False.
        """

    @abstractmethod
    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        """Park a current delivery with its error and exceptions; lapses 0. True and False as in `_release`."""

    @abstractmethod
    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        """The new deadline of each key, `max(deadline, now + lease_us)`; `None` for one that isn't current.

        A row that somebody has locked is reported with its deadline unchanged, never waited for. 0 only looks.
        """

    @abstractmethod
    def _hand_back(self, keys: Sequence[Key]) -> None:
        """Make current deliveries ready again: attempts - 1, token cleared, place kept. Others are left alone."""

    @abstractmethod
    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        """Register `worker` or renew it for `ttl_us`, renew the lease of all it holds, and return the paused queues.

        Leases that would end within half of `lease_us` move to now + `lease_us`, in one statement, skipping rows that
        somebody has locked and the jobs whose ids are in `but`. Called by a process other than the one whose handlers
        run, about every second. Where sessions show liveness the first beat takes the worker's lock, on a connection of
        its own that never reconnects silently; a lost one is taken anew.
        """

    @abstractmethod
    def retire(self, worker: str) -> int:
        """A worker is gone for certain: forget it and free what it holds (lapses + 1, token cleared); how many."""

    @abstractmethod
    def rescue(self) -> int:
        """Free, as `retire` does, what dead workers hold; how many jobs came back. Called about every second.

        Dead is a registered worker whose `ttl` is over, or, with session liveness, one whose lock was absent at two
        sightings some 0.7 s apart while the server had been up for 5 s. Also removes what else outlived its time:
        locks, counters, flags. Deliveries without a worker are never touched (L4). Alone of all calls it may be several
        atomic steps, one a worker: an error then says nothing of those that were freed before.
        """

    @abstractmethod
    def workers(self) -> list[WorkerRow]:
        """The registered workers, by name."""

    # Look.

    @abstractmethod
    def counts(self, queue: str) -> Counts:
        """Pending counts what is due and expired leases, delayed what isn't due, reserved the running leases (C1)."""

    @abstractmethod
    def queues(self) -> list[str]:
        """The names of the queues that have a job, failed ones included, or are paused; sorted by code point."""

    def paused(self) -> frozenset[str]:
        """Every paused queue; by default as a claim tells it, on a queue whose name no push can have."""
        return self.reserve(Claim((NOBODYS_QUEUE,), 1, 1, new_token())).paused

    @abstractmethod
    def oldest_pending(self, queue: str) -> int | None:
        """When the pending job that waits longest became due, in microseconds; `None` when none is pending (C1)."""

    @abstractmethod
    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        """Failed jobs by `(failed_us, id)` downwards, after the cursor `before`; `None` is every tenant (F1)."""

    @abstractmethod
    def find(self, tenant: str | None, job_id: str) -> Row:
        """One failed job. `JobNotFoundError` for another tenant's or none, `NotFailedError` for a live one (F3)."""

    # Repair.

    @abstractmethod
    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        """Put failed jobs back, due now: attempts, exceptions, lapses, error reset, `retried_us` set (F2).

        All or nothing, with the errors of `find`, their `.index` set. Among equals they come in the order given.
        """

    @abstractmethod
    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        """Remove failed jobs, all or nothing, with the errors of `find`; how many (F4)."""

    @abstractmethod
    def prune(self, older_than_us: int | None) -> int:
        """Remove the jobs that failed longer than that ago, `None`: all; how many (F4)."""

    @abstractmethod
    def clear(self, queue: str) -> int:
        """Remove what is pending, delayed and reserved; how many. Jobs in flight lose their lease (C2)."""

    @abstractmethod
    def pause(self, queue: str) -> None:
        """Let no claim take from `queue` from now on; lasts (L9)."""

    @abstractmethod
    def resume(self, queue: str) -> None:
        """Undo `pause`."""

    # Coordinate: keys are short ASCII text (`jobs.stored_key`), values and owners at most 255 characters (K1).

    @abstractmethod
    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        """Take a free or expired lock, or renew one's own; whether `owner` holds it now."""

    @abstractmethod
    def unlock(self, key: str, owner: str) -> bool:
        """Free a lock that `owner` holds; whether it did."""

    @abstractmethod
    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        """Add `by`, 0 to look, to a counter that lives `ttl_us` from its first increment; its value and its end."""

    @abstractmethod
    def read_flag(self, key: str) -> str | None:
        """The value of a flag that is set and not expired."""

    @abstractmethod
    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        """Set a flag; `None`: for good."""

    @abstractmethod
    def erase_flag(self, key: str) -> None:
        """Remove a flag."""

    # Around.

    @abstractmethod
    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        """Block until a job of these queues may be due, at most `timeout_s`; whether it was woken. A hint (W1)."""

    @abstractmethod
    def migrations(self) -> list[Migration]:
        """Every step of the schema, in order, without any I/O; empty for a store without one."""

    @abstractmethod
    def migrate(self) -> list[int]:
        """Apply the steps that are missing, once even when two processes start together; their numbers."""

    @abstractmethod
    def schema_version(self) -> int:
        """The number of the last step applied, 0 for none."""

    @abstractmethod
    def now(self) -> int:
        """The store's clock, in microseconds since the epoch."""

    @abstractmethod
    def ping(self) -> str:
        """Answer with the product and version behind the driver; raises when it can't be reached."""

    def checkup(self) -> list[Finding]:
        """What an operator should know of the store's settings: durability, eviction, a pooler. Nothing by default."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Close every connection. A second call does nothing, any other call opens anew."""


def already_stored(rows: Sequence[NewRow], index: int) -> DuplicateJobError:
    """The error of a row whose id is stored with other content (I1)."""
    return _at(DuplicateJobError(f"job {rows[index].id} is stored already, with other content"), rows, index)


def already_queued(rows: Sequence[NewRow], index: int) -> AlreadyQueuedError:
    """The error of a row whose unique key another job holds (I2)."""
    row = rows[index]
    return _at(AlreadyQueuedError(f"job {row.id} ({row.name}): its unique key is held by another job"), rows, index)


def _at(error: _E, rows: Sequence[NewRow], index: int) -> _E:
    if len(rows) > 1:
        error.index = index
    return error


def _check_bulk(rows: Sequence[NewRow]) -> None:
    size = sum(len(row.envelope) for row in rows)
    if len(rows) > MAX_BULK_JOBS or size > MAX_BULK_BYTES:
        message = (
            f"{len(rows)} jobs of {size} bytes; a bulk holds at most {MAX_BULK_JOBS} jobs and {MAX_BULK_BYTES} bytes"
        )
        raise BulkTooLargeError(message)


def _lease_end(jobs: Sequence[Job]) -> float:
    """Until when settling is repeated: the earliest end of a lease, and a little while at least (S5)."""
    ends = [attached(job).expires for job in jobs]
    return max(min(ends, default=0.0), monotonic() + retry.PATIENCE_S)


def _stored_error(text: str | None) -> str | None:
    return None if text is None else error_text(text)
