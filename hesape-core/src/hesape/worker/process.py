"""One worker process as its supervisor sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape.worker.board import Board
from hesape.worker.control import Control
from hesape.worker.worker import new_worker_id

if TYPE_CHECKING:
    from hesape.records import Key
    from hesape.worker.launch import Launch

LINGER_S: Final = 10.0
"""How long a process that said it was leaving may take to be gone."""


class Process:
    """A fresh interpreter in a process group of its own: a terminal's signals reach it through the supervisor alone."""

    def __init__(self, launch: Launch) -> None:
        """Name it; `start` starts it."""
        self.worker = new_worker_id(launch.options.name)
        self._launch = launch
        self.stopped = False
        """A signal has stopped it: its leases aren't renewed."""
        self.ready = False
        self.but: tuple[str, ...] = ()
        self.reason = ""
        """Why it left, as it said itself; empty when it didn't."""
        self.failure = ""
        """Why it couldn't work at all."""
        self.status: int | None = None
        """Its exit code, negative for the signal that killed it; `None` while it lives."""
        self.culprits: list[Key] = []
        """The deliveries for which it was killed."""
        self.started = 0.0
        self.leaving_at: float | None = None
        self._reading = threading.Lock()

    def start(self) -> None:
        """Start it."""
        self._board = Board.new(self._launch.options.concurrency)
        launch = attrs.evolve(self._launch, worker=self.worker, board=self._board.fd)
        ours, theirs = socket.socketpair()
        self.control = Control(ours)
        self.started = monotonic()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "hesape.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(), self._board.fd),
                stdin=subprocess.DEVNULL,
                process_group=0,
            )
        self.pid = self._popen.pid
        self.control.greet(launch.plain())

    def fit(self, now: float) -> bool:
        """Whether its leases are to be renewed: it isn't stopped, and no job of it is past timeout and grace."""
        return self.status is None and not self.stopped and not self._overdue(now)

    def hear(self) -> None:
        """Take in what it says."""
        for line in self.control.receive(0) or ():
            self._hear(line)

    def _hear(self, line: dict[str, Any]) -> None:
        self.ready = self.ready or bool(line.get("ready"))
        if "but" in line:
            self.but = tuple(line["but"])
        if "failed" in line:
            self.failure = line["failed"]
        if "stopping" in line:
            self.reason = line["stopping"]
            self.leaving_at = monotonic()

    def look(self) -> None:
        """Find out whether it was stopped, goes on, or ended."""
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.stopped = True
            elif os.WIFCONTINUED(status):
                self.stopped = False
            else:
                self._ended(os.waitstatus_to_exitcode(status))

    def _ended(self, status: int) -> None:
        self.hear()
        self._popen.returncode = status
        self.status = status
        self.control.close()
        with self._reading:
            self._board.close()

    def _overdue(self, now: float) -> list[Key]:
        with self._reading:
            return [] if self.status is not None else self._board.overdue(now)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it is known to be gone."""
        if self.status is None:
            os.kill(self.pid, number)

    def kill_if_stuck(self, now: float) -> None:
        """End it when a job is past timeout and grace and it didn't leave, or when it doesn't manage to leave."""
        if self.status is not None or self.stopped:
            return
        overdue = self._overdue(now)
        lingers = self.leaving_at is not None and now > self.leaving_at + LINGER_S
        if overdue or lingers:
            self.culprits = overdue
            self.send_signal(signal.SIGKILL)
