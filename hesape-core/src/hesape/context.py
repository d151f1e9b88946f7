"""Which job runs here and under which grant: for this run alone, in its thread, its coroutine and what they call."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape.grants import Grant
    from hesape.jobs import Job

_running: ContextVar[tuple[Job, Grant] | None] = ContextVar("hesape_running", default=None)


def current_job() -> Job | None:
    """The job that runs here, `None` outside a run."""
    running = _running.get()
    return None if running is None else running[0]


def current_grant() -> Grant | None:
    """The grant that the job here runs under, `None` outside a run (G5)."""
    running = _running.get()
    return None if running is None else running[1]


def enter(job: Job, grant: Grant) -> None:
    """Answer for this job from now on, in this context: for a caller that runs each job in a context of its own."""
    _running.set((job, grant))


@contextmanager
def running(job: Job, grant: Grant) -> Iterator[None]:
    """Answer for this job inside the block, and for what ran before after it."""
    token = _running.set((job, grant))
    try:
        yield
    finally:
        _running.reset(token)
