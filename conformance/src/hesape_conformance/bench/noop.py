"""The application that is measured: one handler that does nothing but stamp its slot, registered as users do."""

from __future__ import annotations

import os
from pathlib import Path

import hesape
from hesape_conformance.bench.stamps import Stamps

app = hesape.App()
_stamps = Stamps(Path(os.environ["HESAPE_BENCH_STAMPS"]), int(os.environ["HESAPE_BENCH_SLOTS"]))


@app.handler("bench.noop")
def noop(slot: int, filling: str) -> None:
    """Count the start."""
    _stamps.stamp(slot)
