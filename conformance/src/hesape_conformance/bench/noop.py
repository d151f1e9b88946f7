"""The application that is measured: handlers that do next to nothing but stamp their slot, registered as users do."""

from __future__ import annotations

import os
import time
from pathlib import Path

import hesape
from hesape_conformance.bench.stamps import FILE_VARIABLE, SLOTS_VARIABLE, Stamps

app = hesape.App()
_stamps = Stamps(Path(os.environ[FILE_VARIABLE]), int(os.environ[SLOTS_VARIABLE]))


@app.handler("bench.noop")
def noop(slot: int, filling: str) -> None:
    """Count the start."""
    _stamps.stamp(slot)


@app.handler("bench.busy")
def busy(slot: int, filling: str) -> None:
    """Count the start, and compute for a millisecond."""
    _stamps.stamp(slot)
    until = time.thread_time_ns() + 1_000_000
    while time.thread_time_ns() < until:
        pass


@app.handler("bench.stuck")
def stuck(slot: int, filling: str) -> None:
    """Count the start, and the first time never end."""
    if _stamps.stamp(slot) == 1:
        time.sleep(3600)
