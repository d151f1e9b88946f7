"""What the tortured application, its producers and whoever starts them call things."""

from __future__ import annotations

from typing import Final

FOLDER_VARIABLE: Final = "HESAPE_TORTURE_FOLDER"
"""Where the history goes."""
LEASE_VARIABLE: Final = "HESAPE_TORTURE_LEASE"
GRACE_VARIABLE: Final = "HESAPE_TORTURE_GRACE"
SKEW_VARIABLE: Final = "HESAPE_TORTURE_SKEW"
"""By how many seconds the process's clock is wrong."""
THREAD: Final = "torture.thread"
COROUTINE: Final = "torture.coroutine"
"""Handlers, and the actions that they run under."""
QUEUES: Final = ("default", "other")
NOOP: Final = "torture.noop"
"""A handler that does nothing."""
