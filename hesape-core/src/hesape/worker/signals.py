"""Signals of processes that run jobs and of a supervisor: TERM, INT and HUP stop, USR1 holds, USR2 goes on."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_ours: Final[dict[signal.Signals, Callable[[int, FrameType | None], None]]] = {}
_forking: Final = threading.local()


def handle(
    *, stop: Callable[[], None], hold: Callable[[], None] | None = None, go_on: Callable[[], None] | None = None
) -> None:
    """Call these in the main thread when signals come, but in no fork of this process. The calls must not block."""
    calls = dict.fromkeys(STOPPING, stop)
    if hold is not None:
        calls[signal.SIGUSR1] = hold
    if go_on is not None:
        calls[signal.SIGUSR2] = go_on
    for number, call in calls.items():
        _ours[number] = lambda *_, call=call: call()
        signal.signal(number, _ours[number])


# A handler may fork and end its children with signals, as multiprocessing does: they must not take them for ours.


def _before_fork() -> None:
    # The copy mustn't get one before it has let go of them.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ours)


def _after_in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_in_child() -> None:
    for number, ours in _ours.items():
        if signal.getsignal(number) is ours:
            signal.signal(number, signal.SIG_DFL)
    _ours.clear()
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
