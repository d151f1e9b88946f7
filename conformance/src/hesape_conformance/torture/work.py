"""`hesape work` as users start it, for tests that look at whole processes; every one of them is ended by its id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from hesape_conformance import guard
from hesape_conformance.torture.fleet import HESAPE, children, configuration

if TYPE_CHECKING:
    from hesape.config import ConnectionSettings

WITHIN_S: Final = 30.0


class Work:
    """Supervisors in one folder; a context manager that leaves none of their processes behind."""

    def __init__(self, folder: Path, settings: ConnectionSettings, app: str) -> None:
        """Write the configuration; `app` is the application's reference."""
        self.folder = folder.resolve()
        self._app = app
        self.supervisors: list[subprocess.Popen[bytes]] = []
        (self.folder / "hesape.toml").write_text(configuration(settings), encoding="utf-8")

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a supervisor."""
        command = [*HESAPE, "work", "--app", self._app, *options]
        with (self.folder / "work.txt").open("ab") as log:
            supervisor = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self.supervisors.append(supervisor)
        return supervisor

    @property
    def pid(self) -> int:
        """The last supervisor's id."""
        return self.supervisors[-1].pid

    def workers(self, supervisor: int | None = None) -> list[int]:
        """The worker processes of a supervisor, by default the last one."""
        return children(supervisor or self.pid)

    def said(self) -> str:
        """What the processes logged."""
        return (self.folder / "work.txt").read_text(encoding="utf-8", errors="replace")

    def until(self, condition: Callable[[], object], what: str, within_s: float = WITHIN_S) -> float:
        """Wait until something holds; after how many seconds it did. `AssertionError` with the log when it doesn't."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + within_s:
                message = f"it didn't come true within {within_s:g} s: {what}\n{self.said()[-4_000:]}"
                raise AssertionError(message)
            time.sleep(0.02)
        return time.monotonic() - began

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ask all to stop, and kill what doesn't."""
        for supervisor in self.supervisors:
            for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    supervisor.send_signal(number)
        deadline = time.monotonic() + WITHIN_S / 2
        while guard.processes_in(self.folder) and time.monotonic() < deadline:
            for supervisor in self.supervisors:
                supervisor.poll()
            time.sleep(0.02)
        guard.kill_all_in(self.folder)
        for supervisor in self.supervisors:
            supervisor.wait()
