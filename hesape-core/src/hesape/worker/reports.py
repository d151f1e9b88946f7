"""What a worker tells: log records with the facts of the job beside the text, and events for observers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from hesape.error_text import message_of
from hesape.events import (
    JobAttempted,
    JobExceptionOccurred,
    JobFailed,
    JobPopped,
    JobProcessed,
    JobProcessing,
    JobReleased,
    JobTimedOut,
    WorkerLooping,
    WorkerStarting,
    WorkerStopping,
    facts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hesape.events import Event
    from hesape.jobs import Job
    from hesape.worker.options import WorkerOptions

logger = logging.getLogger("hesape.worker")

FACTS: Final = ("job", "job_name", "queue", "tenant", "attempt", "duration")
"""What a log record about a job carries beside its text."""


class Reports:
    """Where nobody observes and nobody reads debug lines, a job that goes well costs two looks at a flag."""

    def __init__(self, notify: Callable[[Event], None] | None, worker: str, connection: str) -> None:
        """Tell `notify`, where there is one."""
        self._notify = notify
        self._worker = worker
        self._connection = connection

    def starting(self, options: WorkerOptions) -> None:
        """A worker process is about to take its first job."""
        if self._notify is not None:
            self._notify(
                WorkerStarting(
                    worker=self._worker,
                    connection=self._connection,
                    queues=options.queues,
                    concurrency=options.concurrency,
                )
            )

    def looping(self) -> None:
        """It asks the store for jobs."""
        if self._notify is not None:
            self._notify(WorkerLooping(worker=self._worker, connection=self._connection))

    def stopping(self, reason: str, status: int) -> None:
        """It leaves."""
        logger.info("worker %s stops: %s", self._worker, reason)
        if self._notify is not None:
            event = WorkerStopping(worker=self._worker, connection=self._connection, reason=reason, status=status)
            self._notify(event)

    def popped(self, jobs: Sequence[Job]) -> None:
        """It took jobs."""
        if self._notify is not None:
            for job in jobs:
                self._notify(JobPopped(**facts_of(job)))

    def processing(self, job: Job) -> None:
        """A job's turn has come."""
        if self._notify is not None:
            self._notify(JobProcessing(**facts_of(job)))

    def processed(self, job: Job, duration_s: float) -> None:
        """A job went well, and the store knows."""
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("job %s (%s) is done", job.id, job.resolved_name, extra=_facts(job, duration_s))
        if self._notify is not None:
            self._notify(JobProcessed(**facts_of(job), duration_s=duration_s))
            self._attempted(job, duration_s, "processed")

    def marked(self, job: Job, duration_s: float) -> None:
        """A job was parked by its handler, or marked by it as failed and deleted (S6)."""
        logger.warning(
            "job %s (%s) was failed by its handler", job.id, job.resolved_name, extra=_facts(job, duration_s)
        )
        if self._notify is not None:
            self._notify(JobFailed(**facts_of(job), error=""))
            self._attempted(job, duration_s, "failed")

    def parked(self, job: Job, cause: BaseException, duration_s: float, *, ran: bool) -> None:
        """A job was parked: after its handler raised, or before it ran."""
        said = (job.id, job.resolved_name, type(cause).__name__, _brief(cause))
        logger.error("job %s (%s) is parked: %s: %s", *said, extra=_facts(job, duration_s))
        if self._notify is not None:
            self._notify(JobFailed(**facts_of(job), error=type(cause).__name__))
            if ran:
                self._raised(job, cause, duration_s)
            self._attempted(job, duration_s, "failed")

    def released(self, job: Job, cause: BaseException, delay_s: float, duration_s: float) -> None:
        """A job is put back after its handler raised."""
        said = (job.id, job.resolved_name, delay_s, type(cause).__name__, _brief(cause))
        logger.warning("job %s (%s) comes back in %.1f s: %s: %s", *said, extra=_facts(job, duration_s))
        if self._notify is not None:
            self._raised(job, cause, duration_s)
            self._notify(JobReleased(**facts_of(job), delay_s=delay_s))
            self._attempted(job, duration_s, "released")

    def settled(self, job: Job, kind: str, cause: BaseException | None, duration_s: float) -> None:
        """A handler or its middleware settled its job itself, and may have raised after that (S7)."""
        if cause is not None:
            said = (job.id, job.resolved_name, kind, type(cause).__name__, _brief(cause))
            text = "job %s (%s) was settled (%s) by its own handler or middleware, which raised %s: %s"
            logger.warning(text, *said, extra=_facts(job, duration_s))
        if self._notify is None:
            return
        if kind == "fail":
            self._notify(JobFailed(**facts_of(job), error="" if cause is None else type(cause).__name__))
        if cause is not None:
            self._raised(job, cause, duration_s)
        elif kind != "fail":
            self._notify(JobProcessed(**facts_of(job), duration_s=duration_s))
        self._attempted(job, duration_s, "settled")

    def lost(self, job: Job, duration_s: float) -> None:
        """A settlement came after the lease's end: nothing was changed, another delivery decides (L4)."""
        logger.warning(
            "job %s (%s) lost its lease before it could be settled; another delivery decides",
            job.id,
            job.resolved_name,
            extra=_facts(job, duration_s),
        )
        if self._notify is not None:
            self._attempted(job, duration_s, "lost")

    def unsettled(self, job: Job, error: BaseException, duration_s: float) -> None:
        """The store didn't take a settlement; the lease's end redelivers."""
        said = (job.id, job.resolved_name, type(error).__name__, _brief(error))
        logger.error("job %s (%s) couldn't be settled: %s: %s", *said, extra=_facts(job, duration_s))
        if self._notify is not None:
            self._attempted(job, duration_s, "unsettled")

    def timed_out(self, job: Job, timeout_s: float) -> None:
        """A handler ran past its timeout."""
        if self._notify is not None:
            self._notify(JobTimedOut(**facts_of(job), timeout_s=timeout_s))

    def _raised(self, job: Job, cause: BaseException, duration_s: float) -> None:
        assert self._notify is not None  # noqa: S101 - the callers looked
        self._notify(JobExceptionOccurred(**facts_of(job), error=type(cause).__name__, duration_s=duration_s))

    def _attempted(self, job: Job, duration_s: float, outcome: str) -> None:
        assert self._notify is not None  # noqa: S101
        self._notify(JobAttempted(**facts_of(job), duration_s=duration_s, outcome=outcome))


def _facts(job: Job, duration_s: float) -> dict[str, Any]:
    facts = (job.id, job.resolved_name, job.queue, job.tenant, job.attempts, duration_s)
    return dict(zip(FACTS, facts, strict=True))


def _brief(error: BaseException) -> str:
    """The first line of what an exception says."""
    return message_of(error).partition("\n")[0][:300]
