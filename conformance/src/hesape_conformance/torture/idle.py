"""Whether a worker that has nothing to do stays as it is, beside other stores' torture: it costs them nothing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from hesape_conformance.torture.flat import FlatReport, Moments, look, run, working

if TYPE_CHECKING:
    from hesape_conformance.harness import Harness

NAMESPACE: Final = "idle"
PARTS: Final = 3
"""After each part of the time a measure is taken."""
JOBS: Final = 1_000
"""What the worker does first: it has then opened what it needs."""


class Idler:
    """A worker process on a store of its own, a context manager; look at it now and then, and `finish`."""

    def __init__(self, harness: Harness, idle_s: float) -> None:
        """Let it idle for `idle_s` at least; the driver of a started harness."""
        self._harness = harness
        self._idle_s = idle_s
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start it, and take the first measure."""
        queue, self._work = self._stack.enter_context(working(self._harness, NAMESPACE))
        run(queue, self._work, JOBS)
        self._moments: Moments = {f"after {JOBS} jobs": look(self._work)}
        self._began = self._looked_at = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._stack.close()

    def look_if_due(self) -> None:
        """Take a measure if a part of the time has passed since the last one."""
        now = time.monotonic()
        if now >= self._looked_at + self._idle_s / PARTS:
            self._looked_at = now
            self._moments[f"idle {now - self._began:.0f} s"] = look(self._work)

    def finish(self) -> FlatReport:
        """Wait for what is left of the time."""
        while len(self._moments) <= PARTS:
            time.sleep(max(self._looked_at + self._idle_s / PARTS - time.monotonic(), 0.0))
            self.look_if_due()
        return FlatReport(
            driver=self._harness.driver,
            server=" ".join(self._harness.server()),
            jobs=JOBS,
            idle_s=self._looked_at - self._began,
            took_s=time.monotonic() - self._began,
            moments=self._moments,
        )
