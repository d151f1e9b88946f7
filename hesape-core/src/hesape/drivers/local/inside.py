"""`hesape work --stdin`: the child process of `background`, which runs what its parent hands it on standard input."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

import attrs

from hesape.drivers.local.child import heard, row_of
from hesape.drivers.local.deferred import DeferredDriver
from hesape.errors import ConfigError, HesapeError, UnsupportedError
from hesape.jobs import Job, popped, received
from hesape.worker import signals

if TYPE_CHECKING:
    from hesape.app import App
    from hesape.driver import Host
    from hesape.envelope import Keys
    from hesape.records import NewRow

logger = logging.getLogger(__name__)


@attrs.define
class _Process:
    """What this process is: no child of `background`, one that imports its application, or one that works."""

    role: Literal["", "loading", "working"] = ""
    drivers: list[InsideDriver] = attrs.field(factory=list)
    """What its jobs may be in."""


here = _Process()


class InsideDriver(DeferredDriver):
    """A `background` connection inside a child: its jobs run in this very process, or children would have children."""

    def __init__(self, connection: str, host: Host, *, threads: int, room: int, grace_s: float) -> None:
        """As `deferred`, but for a grace at the end."""
        super().__init__(connection, host, threads=threads, room=room)
        self._grace_s = grace_s
        self.parent: Parent | None = None
        """Who learns that a job is over."""
        here.drivers.append(self)

    def _ended(self, job: Job) -> None:
        if self.parent is not None:
            self.parent.say(done=job.id)

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        if here.role != "working":
            message = (
                f"connection {self._connection!r}: a push while its child process imports the application, which would"
                ' push again in each child; do it in a function, or under `if __name__ == "__main__"`'
            )
            raise UnsupportedError(message)
        super()._store(rows, tx)

    def receive(self, records: Sequence[dict[str, Any]], keys: Keys) -> None:
        """Take the records of one push, all or none, each checked as at a pop (G8)."""
        rows = [row_of(record, self.now()) for record in records]
        self.take(
            [(row.due_us, row.priority, popped(self, self._connection, received(row, b"", keys))) for row in rows]
        )

    def finish(self) -> list[Job]:
        """Run what is due and drop what isn't, here and in the process's other connections, which may push to another.

        What isn't over at the end of the grace is returned.
        """
        deadline = monotonic() + self._grace_s
        unfinished: list[Job] = []
        while not unfinished and any(driver.pool.busy for driver in here.drivers):
            for driver in here.drivers:
                unfinished += driver.pool.close(max(0.0, deadline - monotonic()))
        return unfinished


class Parent:
    """The parent, at the other end of standard input."""

    def __init__(self) -> None:
        """Take standard input away from the application, whose handlers and programs must not read it."""
        if not stat.S_ISSOCK(os.fstat(0).st_mode):
            message = "--stdin is for the driver 'background', which starts this command itself"
            raise ConfigError(message)
        self._end = socket.socket(fileno=os.dup(0))
        self._end.settimeout(None)
        os.register_at_fork(after_in_child=self._disown)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._sending = threading.Lock()

    def _disown(self) -> None:
        """Close a forked process's copy, which would hold the line open."""
        with suppress(OSError):  # it is a fork of a fork
            os.close(self._end.detach())

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, until it ends or this process is asked to."""
        return heard(self._end)

    def say(self, **said: Any) -> None:
        """Tell it; one that has gone doesn't need to know."""
        line = json.dumps(said).encode() + b"\n"
        with self._sending, suppress(OSError):
            self._end.sendall(line)

    def stop_listening(self) -> None:
        """Read nothing more than what has arrived, when a signal comes. A second signal ends the process."""
        for number in signals.STOPPING:
            signal.signal(number, signal.SIG_DFL)
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RD)


def serve(reference: str, connection: str | None) -> int:
    """Import the application, run what its parent hands over, and finish it when the parent ends; the exit code."""
    parent = Parent()
    signals.handle(stop=parent.stop_listening)
    lines = parent.lines()
    sys.path[:] = next(lines, {"path": sys.path})["path"]
    here.role = "loading"
    try:
        app, driver = _load(reference, connection)
    except HesapeError as error:
        parent.say(failed=f"{error.code}: {error}")
        return 1
    here.role, driver.parent = "working", parent
    parent.say(ready=True)
    for line in lines:
        try:
            driver.receive(line["jobs"], app.keys)
        except HesapeError as error:
            parent.say(push=line["push"], refused=str(error))
        else:
            parent.say(push=line["push"])
    unfinished = driver.finish()
    if not unfinished:
        app.close()
        return 0
    for job in unfinished:
        logger.error("job %s (%s) wasn't over at the end of the grace and is lost", job.id, job.name)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # its threads run on: nothing of them may hold the process up


def _load(reference: str, connection: str | None) -> tuple[App, InsideDriver]:
    from hesape.app import load_app

    app = load_app(reference)
    queue = app.connection(connection)
    if not isinstance(queue.driver, InsideDriver):
        message = (
            f"connection {queue.name!r} of the App {reference} ({app.configuration.source}) is"
            f" {queue.driver.spec.name!r}, expected 'background'"
        )
        raise ConfigError(message)
    return app, queue.driver
