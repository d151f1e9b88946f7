"""The writing side: one file a process, one line an event, whole even when the process is killed."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from hesape.jobs import Job


class Recorder:
    """Appends events to a file of its own in `folder`. Threads may share it.

    push      call, jobs ({id: content}), delay_s        before a push; `call` is the pusher's own number for it
    pushed    call, outcome (ok, refused, unknown)       after it
    starting  worker, lease_s, grace_s, parent           a worker process, `pid`, begins
    stopping  reason                                     it has put back what it didn't finish, and leaves
    asking                                               it is about to ask the store for jobs
    popped    job, attempt                               it holds a delivery
    started   job, attempt, content                      its handler began
    settling  job, attempt, how, delay_s                 before the delivery is settled: delete, release or park
    settled   job, attempt, outcome                      after it, as the worker's events name it
    killed, stopped, continued, asked                    a signal to `pid` (KILL, STOP, CONT, TERM); noted before it
    away, back  why                                      the store can't be reached, and can again
    cut                                                  the store ended every session
    """

    def __init__(self, folder: Path, who: str) -> None:
        """Make the file, named by `who` writes it."""
        path = folder / f"{who}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def note(self, what: str, **facts: Any) -> None:
        """Append one event of now. `pid` is this process's unless it is among the facts."""
        line = {"at": monotonic(), "what": what, "pid": os.getpid(), **facts}
        os.write(self._fd, json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def content_of(job: Job) -> str:
    """A digest of what a job's pusher decided: equal before the push and at its delivery, or it was altered."""
    parts = (job.tenant, job.authorized_by, job.action, job.name, job.queue, str(job.priority))
    digest = hashlib.sha256("\n".join(parts).encode() + b"\n" + job.payload)
    return digest.hexdigest()[:20]
