"""The supervisor: it starts worker processes, renews them from outside, restarts what dies, and has one exit code."""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

from hesape.driver import Fact
from hesape.errors import OutcomeUnknownError, StoreUnavailableError, UnsupportedError
from hesape.worker import signals
from hesape.worker.outage import Outage
from hesape.worker.process import Process
from hesape.worker.renewer import Renewer
from hesape.worker.worker import MEMORY_STATUS, Reason

if TYPE_CHECKING:
    from hesape.handlers import Registry
    from hesape.queue import Queue
    from hesape.worker.launch import Launch

logger = logging.getLogger("hesape.worker")

_TICK_S: Final = 0.25
_MARGIN_S: Final = 5.0
"""How much longer than their grace the processes get to leave before they are killed."""
_YOUNG_S: Final = 10.0
"""A process that died younger than this is started again after a pause that grows."""
_FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
_OVER: Final = frozenset((Reason.EMPTY, Reason.MAX_JOBS))
"""Reasons after which a process isn't started again."""
_RECYCLED: Final = frozenset((Reason.MEMORY, Reason.MAX_TIME))
"""Reasons after which one of several is started again; the only one ends the command with its exit code."""


class Supervisor:
    """Runs in the main thread of `hesape work`."""

    def __init__(self, queue: Queue, registry: Registry, launch: Launch) -> None:
        """Supervise as many processes as the options say; `UnsupportedError` for a store of one process."""
        spec = queue.driver.spec
        if Fact.MULTI_PROCESS not in spec.facts:
            message = (
                f"connection {queue.name!r}: the driver {spec.name!r} serves one process alone,"
                " and a worker is several; use a store such as sqlite"
            )
            raise UnsupportedError(message)
        self._launch = launch
        self._options = launch.options
        self._processes: list[Process] = []
        self._renewer = Renewer(queue, registry, launch.options, lambda: list(self._processes))
        self._outage = Outage(f"supervisor on connection {queue.name}")
        self._to_start = [0.0] * launch.options.processes
        """When the missing processes are to be started, by the monotonic clock."""
        self._deaths = 0
        self._codes: list[int] = []
        self._stops = 0
        self._kill_at: float | None = None
        self._wakeup, self._wakener = socket.socketpair()

    def run(self) -> int:
        """Work until every process has ended for good; the exit code of them all."""
        self._listen()
        self._renewer.start()
        try:
            while self._to_start or self._processes:
                self._start_due()
                self._sleep()
                self._look()
        finally:
            self._end()
        return MEMORY_STATUS if MEMORY_STATUS in self._codes else max(self._codes, default=0)

    # Signals.

    def _listen(self) -> None:
        for end in (self._wakeup, self._wakener):
            end.settimeout(0)
        signal.set_wakeup_fd(self._wakener.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signals.handle(
            stop=self.stop,
            hold=lambda: self._forward(signal.SIGUSR1),
            go_on=lambda: self._forward(signal.SIGUSR2),
        )

    def stop(self) -> None:
        """Stop gracefully; a second time at once."""
        self._stops += 1
        self._to_start = []
        wait_s = _MARGIN_S + (self._options.grace_s if self._stops == 1 else 0.0)
        self._kill_at = monotonic() + wait_s
        self._forward(signal.SIGTERM)

    def _forward(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)

    # Processes.

    def _start_due(self) -> None:
        now = monotonic()
        for due in [due for due in self._to_start if due <= now]:
            if now < self._outage.until:
                return
            process = Process(self._launch)
            try:
                self._renewer.register(process)
            except (StoreUnavailableError, OutcomeUnknownError) as error:
                self._outage.failed(error)
                return
            self._outage.answered()
            if due in self._to_start:  # else a signal came meanwhile
                self._to_start.remove(due)
                process.start()
                self._processes.append(process)
                logger.info("worker %s started, process %d", process.worker, process.pid)

    def _sleep(self) -> None:
        ends = [process.control.socket for process in self._processes if not process.control.over]
        ready, _, _ = select.select([self._wakeup, *ends], [], [], self._wait_s())
        if self._wakeup in ready:
            self._wakeup.recv(4096)
        for process in self._processes:
            if process.control.socket in ready:
                process.hear()

    def _wait_s(self) -> float:
        times_due = [due - monotonic() for due in self._to_start]
        return min([_TICK_S, *(max(left, 0.01) for left in times_due)])

    def _look(self) -> None:
        now = monotonic()
        for process in list(self._processes):
            process.look()
            process.kill_if_stuck(now)
            if self._kill_at is not None and now > self._kill_at:
                process.send_signal(signal.SIGKILL)
            if process.status is not None:
                self._processes.remove(process)
                self._renewer.bury(process)
                self._ended(process, now)
        if self._renewer.restart_asked:
            self._renewer.restart_asked = False
            for process in self._processes:
                process.control.send(restart=True)

    def _ended(self, process: Process, now: float) -> None:
        """Decide whether the process is replaced, and when."""
        status = process.status or 0
        crashed = not process.reason
        if process.failure:
            self._codes.append(1)
        elif self._stops or process.reason in _OVER:
            self._codes.append(0)
        elif process.reason in _RECYCLED and self._options.processes == 1:
            self._codes.append(status)
        elif crashed and self._options.once:
            self._codes.append(1)
        else:
            pause_s = self._pause_s(now - process.started) if crashed else 0.0
            self._to_start.append(now + pause_s)
            if crashed:
                logger.error("worker %s died (%s); another starts in %.1f s", process.worker, _how(status), pause_s)
            return
        if crashed and not self._stops:
            logger.error("worker %s ended (%s) %s", process.worker, _how(status), process.failure)

    def _pause_s(self, age_s: float) -> float:
        self._deaths = 1 if age_s > _YOUNG_S else self._deaths + 1
        return min(_FIRST_PAUSE_S * 2.0 ** min(self._deaths - 1, 20), LONGEST_PAUSE_S)

    def _end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            os.waitpid(process.pid, 0)
            self._renewer.bury(process)
        self._renewer.close(_MARGIN_S)
        signal.set_wakeup_fd(-1)
        self._wakeup.close()
        self._wakener.close()


def _how(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
