"""Signals of a worker process and of its supervisor: TERM, INT and HUP stop, USR1 holds, USR2 goes on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def handle(*, stop: Callable[[], None], hold: Callable[[], None], go_on: Callable[[], None]) -> None:
    """Call these in the main thread when signals come. The calls must not block."""
    for number in STOPPING:
        signal.signal(number, lambda *_: stop())
    signal.signal(signal.SIGUSR1, lambda *_: hold())
    signal.signal(signal.SIGUSR2, lambda *_: go_on())
