"""Processes of their own that open a store: they are killed, given wrong clocks, and told to fork.

A child imports the harness's class to get the driver's spec, opens the namespace, runs one task of `tasks`, and answers
with lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.config import ConnectionSettings
    from hesape_conformance.harness import Harness

ANSWERS_WITHIN_S = 30.0
_END = object()


class Child:
    """A process that runs one task on a namespace; a context manager that never leaves it behind."""

    def __init__(
        self,
        harness: type[Harness],
        settings: ConnectionSettings,
        task: str,
        arguments: Sequence[Any],
        clock_s: float = 0.0,
    ) -> None:
        """Say what to run, with a clock that is so many seconds ahead; `__enter__` starts it."""
        orders = ((sys.path, clock_s), (task, tuple(arguments)), (harness, settings))
        self._message = b"".join(map(pickle.dumps, orders))
        self._lines: queue.Queue[Any] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hesape_conformance.tasks"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(self._message)
            self._process.stdin.flush()
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process, once started."""
        assert self._process is not None
        return self._process

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(_END)

    def answer(self) -> Any:
        """The next answer; fails with what the child printed when it ends without one."""
        printed: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=ANSWERS_WITHIN_S)
            except queue.Empty:
                message = f"the child gave no answer within {ANSWERS_WITHIN_S:g} s; it printed: {printed}"
                raise AssertionError(message) from None
            if line is _END:
                self._lines.put(_END)
                code = self.process.wait()
                message = f"the child ended with code {code} and no answer; it printed: {''.join(printed)}"
                raise AssertionError(message)
            text = line.decode(errors="replace")
            if text.startswith("="):
                return json.loads(text[1:])
            printed.append(text)

    def said(self) -> list[Any]:
        """What it had answered and nobody asked for, once it is gone; a line that it couldn't finish is left out."""
        found = []
        while (line := self._lines.get(timeout=ANSWERS_WITHIN_S)) is not _END:
            if line.startswith(b"=") and line.endswith(b"\n"):
                found.append(json.loads(line[1:]))
        return found

    def tell(self) -> None:
        """Let it go on, where its task waits for that."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash does."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):
                        stream.close()

    def finish(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(ANSWERS_WITHIN_S)
