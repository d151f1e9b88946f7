"""The watcher: interrupts handlers at their timeout and finds those that ignore it."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

from hesape.worker.bell import Bell
from hesape.worker.slots import IGNORED_S, SHORT_S

if TYPE_CHECKING:
    from hesape.worker.slots import Crew, Slot

_AGAIN_S: Final = 0.005
"""When an interruption that found its thread inside a call to a store is tried again."""


class Watcher:
    """A thread that looks at every slot: at the next deadline, and a few times a second."""

    def __init__(self, crew: Crew) -> None:
        """Watch over `crew`."""
        self._crew = crew
        self._bell = crew.watch = Bell()
        self._closing = False
        self._seen: dict[int, int] = {}
        self._thread = threading.Thread(target=self._work, name="timeouts", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closing = True
        self._bell.ring()

    def ignoring(self) -> list[Slot]:
        """The slots whose handlers were interrupted a while ago and still run."""
        limit = monotonic() - IGNORED_S
        return [slot for slot in self._crew.slots if slot.deadline < limit]

    def _work(self) -> None:
        while not self._closing:
            self._bell.lie_down()
            self._bell.sleep(self._look())

    def _look(self) -> float:
        """Interrupt what is over its time; return in how many seconds to look again."""
        again_s = SHORT_S / 2
        for slot in self._crew.slots:
            run, deadline = slot.thread.runs, slot.deadline
            left = deadline - monotonic()
            if left > 0:
                again_s = min(again_s, left)
            elif left < -IGNORED_S:
                self._crew.bell.ring()
            elif not self._interrupt(slot, run):
                again_s = _AGAIN_S
        return again_s

    def _interrupt(self, slot: Slot, run: int) -> bool:
        """Interrupt a run, once; whether that is done."""
        if self._seen.get(slot.number) == run:
            return True
        slot.timed_out_run = run
        if (cancel := slot.cancel) is not None:
            cancel()
        elif not slot.thread.interrupt(run):
            return False
        self._seen[slot.number] = run
        return True
