"""What happened, as values for observers; delivered after the fact.

An event carries ids, names, queue, tenant, durations and the classes of errors: never a payload, a grant or a URL. For
one delivery the order is: processing, then (failed, exception) or (exception, released) or processed, and attempted
always last. `timed out` comes before the exception that it is counted as.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs

if TYPE_CHECKING:
    from hesape.jobs import Job


@attrs.frozen(kw_only=True)
class Event:
    """Something that happened."""

    kind: ClassVar[str] = ""
    """What happened, in a word or two that stay the same."""


@attrs.frozen(kw_only=True)
class JobEvent(Event):
    """Something that happened to one job."""

    id: str
    name: str
    """The name that it is shown by: its display name, else its name."""
    queue: str
    tenant: str
    connection: str
    attempt: int = 0
    """Which delivery it is, 1 for the first; 0 before any."""


@attrs.frozen(kw_only=True)
class JobQueueing(JobEvent):
    """A job passed its checks and is about to be stored."""

    kind: ClassVar[str] = "queueing"


@attrs.frozen(kw_only=True)
class JobQueued(JobEvent):
    """The store accepted a job; inside a lent transaction: its commit is still to come."""

    kind: ClassVar[str] = "queued"


@attrs.frozen(kw_only=True)
class JobPopped(JobEvent):
    """A worker took a job; its handler hasn't started."""

    kind: ClassVar[str] = "popped"


@attrs.frozen(kw_only=True)
class JobProcessing(JobEvent):
    """A job's turn has come: it is looked up and checked, then its handler starts."""

    kind: ClassVar[str] = "processing"


@attrs.frozen(kw_only=True)
class JobProcessed(JobEvent):
    """The handler ended well and the store knows: the job is gone, or settled by the handler itself."""

    kind: ClassVar[str] = "processed"
    duration_s: float


@attrs.frozen(kw_only=True)
class JobAttempted(JobEvent):
    """A delivery is over; the last event of each."""

    kind: ClassVar[str] = "attempted"
    duration_s: float
    outcome: str
    """`processed`, `released`, `failed`, `settled` (by the handler), `lost` (the lease was over) or `unsettled` (the
    store didn't answer before the lease's end)."""


@attrs.frozen(kw_only=True)
class JobExceptionOccurred(JobEvent):
    """A handler raised; `failed` before it says that the job is parked, else it comes back."""

    kind: ClassVar[str] = "exception"
    error: str
    """The exception's class."""
    duration_s: float


@attrs.frozen(kw_only=True)
class JobReleased(JobEvent):
    """A job was put back."""

    kind: ClassVar[str] = "released"
    delay_s: float


@attrs.frozen(kw_only=True)
class JobFailed(JobEvent):
    """A job was parked, or was marked as failed and deleted."""

    kind: ClassVar[str] = "failed"
    error: str
    """The class of the cause, empty when none was given."""


@attrs.frozen(kw_only=True)
class JobTimedOut(JobEvent):
    """A handler ran past its timeout and was interrupted, or its process was ended."""

    kind: ClassVar[str] = "timed out"
    timeout_s: float


@attrs.frozen(kw_only=True)
class JobRetried(Event):
    """A failed job was put back by a person or an application."""

    kind: ClassVar[str] = "retried"
    id: str
    connection: str
    tenant: str = ""
    """The tenant of the grant that asked; empty for the operator."""


@attrs.frozen(kw_only=True)
class WorkerEvent(Event):
    """Something about a worker process."""

    worker: str
    connection: str


@attrs.frozen(kw_only=True)
class WorkerStarting(WorkerEvent):
    """A worker process is about to take its first job."""

    kind: ClassVar[str] = "starting"
    queues: tuple[str, ...]
    concurrency: int


@attrs.frozen(kw_only=True)
class WorkerLooping(WorkerEvent):
    """A worker asks the store for jobs."""

    kind: ClassVar[str] = "looping"


@attrs.frozen(kw_only=True)
class WorkerStopping(WorkerEvent):
    """A worker process has handed back what it didn't start and is about to leave."""

    kind: ClassVar[str] = "stopping"
    reason: str
    status: int
    """Its exit code."""


@attrs.frozen(kw_only=True)
class QueueEvent(Event):
    """Something about a queue."""

    connection: str
    queue: str


@attrs.frozen(kw_only=True)
class QueuePaused(QueueEvent):
    """Nobody takes jobs from a queue until it is resumed."""

    kind: ClassVar[str] = "paused"


@attrs.frozen(kw_only=True)
class QueueResumed(QueueEvent):
    """A paused queue is worked again."""

    kind: ClassVar[str] = "resumed"


@attrs.frozen(kw_only=True)
class QueueBusy(QueueEvent):
    """A queue was found at the limit of `hesape monitor` or over it."""

    kind: ClassVar[str] = "busy"
    size: int
    """All that was still to be done there: pending, delayed and reserved."""


@attrs.frozen(kw_only=True)
class QueueFailedOver(QueueEvent):
    """A push went to another member of a failover connection."""

    kind: ClassVar[str] = "failed over"
    member: str
    """The connection that took it."""
    error: str
    """The class of the error that the member before it raised."""


def facts_of(job: Job) -> dict[str, Any]:
    """What every event about `job` says, as keyword arguments."""
    return {
        "id": job.id,
        "name": job.resolved_name,
        "queue": job.queue,
        "tenant": job.tenant,
        "connection": job.connection_name,
        "attempt": job.attempts,
    }
