"""The application of the flatness test: a handler that does nothing."""

from __future__ import annotations

import hesape
from hesape_conformance.torture.names import NOOP

app = hesape.App()


@app.handler(NOOP)
def noop(n: int) -> None:
    """Do nothing."""
