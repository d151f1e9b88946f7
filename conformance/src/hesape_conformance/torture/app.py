"""The application that is tortured: handlers that note when they begin and what they ask for, and an observer.

Its folder, where its history goes, and how its worker was started come through the environment.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Final

import hesape
from hesape import plugins
from hesape.events import JobAttempted, JobPopped, WorkerLooping, WorkerStarting, WorkerStopping
from hesape_conformance.history import Recorder, content_of
from hesape_conformance.torture.names import COROUTINE, FOLDER_VARIABLE, GRACE_VARIABLE, LEASE_VARIABLE, THREAD

AGAIN_S: Final = 0.3
"""When a job comes back that raises or releases itself at its first attempt."""

LINGERS_S: Final = 3.5

app = hesape.App()
_recorder = Recorder(Path(os.environ[FOLDER_VARIABLE]), "worker")


class Watch:
    """Notes what the worker says."""

    @plugins.hookimpl
    def hesape_event(self, event: object) -> None:
        """Take one event."""
        if isinstance(event, JobPopped):
            _recorder.note("popped", job=event.id, attempt=event.attempt)
        elif isinstance(event, WorkerLooping):
            _recorder.note("asking")
        elif isinstance(event, JobAttempted):
            _recorder.note("settled", job=event.id, attempt=event.attempt, outcome=event.outcome)
        elif isinstance(event, WorkerStarting):
            lease_s, grace_s = float(os.environ[LEASE_VARIABLE]), float(os.environ[GRACE_VARIABLE])
            _recorder.note("starting", worker=event.worker, lease_s=lease_s, grace_s=grace_s, parent=os.getppid())
        elif isinstance(event, WorkerStopping):
            _recorder.note("stopping", reason=event.reason)


plugins.add_observer(Watch())


@app.handler(THREAD, tries=100_000, backoff=(AGAIN_S,))
def thread(job: hesape.Job, mode: str, for_s: float, filling: str) -> None:
    """Work in a thread: asleep, or holding the interpreter."""
    _begin(job)
    if mode == "busy":
        _spin(for_s)
    else:
        time.sleep(_lasts_s(job, mode, for_s))
    _finish(job, mode)


@app.handler(COROUTINE, tries=100_000, backoff=(AGAIN_S,))
async def coroutine(job: hesape.Job, mode: str, for_s: float, filling: str) -> None:
    """Work in a coroutine."""
    _begin(job)
    await asyncio.sleep(_lasts_s(job, mode, for_s))
    _finish(job, mode)


def _lasts_s(job: hesape.Job, mode: str, for_s: float) -> float:
    """Half of the jobs that are delivered again last: the frozen worker that had them before finds them running."""
    lingers = mode == "sleep" and job.attempts > 1 and int(job.id[-1], 16) % 2
    return for_s + LINGERS_S if lingers else for_s


def _begin(job: hesape.Job) -> None:
    _recorder.note("started", job=job.id, attempt=job.attempts, content=content_of(job))


def _spin(for_s: float) -> None:
    until = time.monotonic() + for_s
    while time.monotonic() < until:
        sum(range(1_000))


def _finish(job: hesape.Job, mode: str) -> None:
    if mode in {"raise", "release"} and job.attempts == 1:
        _recorder.note("settling", job=job.id, attempt=job.attempts, how="release", delay_s=AGAIN_S)
        if mode == "raise":
            message = "a failure that was wanted"
            raise RuntimeError(message)
        job.release(AGAIN_S)
        return
    how = "park" if mode == "park" else "delete"
    _recorder.note("settling", job=job.id, attempt=job.attempts, how=how)
    if mode == "park":
        raise hesape.FailJob
    if mode == "delete":
        job.delete()
