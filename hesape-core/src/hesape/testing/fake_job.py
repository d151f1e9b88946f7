"""A job that came off nothing and remembers what was done to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, overload

from hesape import times
from hesape.grants import system_grant
from hesape.jobs import Job, popped

if TYPE_CHECKING:
    from collections.abc import Sequence


class FakeJob(Job):
    """A job, and the thing it settles with.

    Its attempts are 1, its action is its name. As `popped`, this is a door as strong as `system_grant`.
    """

    def __init__(self, name: str, tenant: str, payload: object = None) -> None:
        """Build a job that a handler can be called with."""
        built = Job.new(system_grant(name, tenant), name, payload)
        super().__init__(
            built.id,
            name=built.name,
            tenant=built.tenant,
            payload=built.payload,
            queue="default",
            authorized_by=built.authorized_by,
            action=built.action,
            priority=100,
            attempts=1,
        )
        self.release_delay = timedelta(0)
        """How long it asked to wait; zero unless it was released."""
        self.failed_with: BaseException | str | None = None
        """What it was parked with; `None` unless it was parked."""
        popped(self, "fake", self)

    def delete_jobs(self, jobs: Sequence[Job], *, tx: object = None) -> list[Job]:
        """Accept the deletion."""
        return []

    def release_job(self, job: Job, delay: float | timedelta, *, spent: bool = True, tx: object = None) -> None:
        """Remember the delay."""
        self.release_delay = timedelta(microseconds=times.delay_us(delay))

    def fail_job(self, job: Job, cause: BaseException | str | None, *, tx: object = None) -> None:
        """Remember the cause."""
        self.failed_with = cause

    @overload  # it is both: the job asks with a lease, what it settles with with jobs and a lease
    def extend(self, jobs: float | timedelta, /) -> datetime: ...

    @overload
    def extend(self, jobs: Sequence[Job], lease: float | timedelta, /) -> tuple[list[datetime], list[Job]]: ...

    def extend(
        self, jobs: float | timedelta | Sequence[Job], lease: float | timedelta = 0, /
    ) -> datetime | tuple[list[datetime], list[Job]]:
        """As a job: the new deadline. As what it settles with: a deadline a job, and none lost."""
        if isinstance(jobs, int | float | timedelta):
            return super().extend(jobs)
        deadline = datetime.now(UTC) + timedelta(microseconds=times.delay_us(lease))
        return [deadline for _ in jobs], []
