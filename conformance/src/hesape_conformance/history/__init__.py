"""What processes say while they push, take and settle jobs, and whether it can have happened on a right store.

Each process appends to a file of its own, one line an event, with the monotonic clock that all processes of a machine
share. What is noted before a call and after it encloses the moment at which the store acted: the checker asks for
nothing that these moments leave open.
"""

from __future__ import annotations

from hesape_conformance.history.checking import Kind, Verdict, Violation, check
from hesape_conformance.history.model import Call, Delivery, History, Process, Push, Span
from hesape_conformance.history.reading import read, replay
from hesape_conformance.history.recording import Recorder, content_of

__all__ = [
    "Call",
    "Delivery",
    "History",
    "Kind",
    "Process",
    "Push",
    "Recorder",
    "Span",
    "Verdict",
    "Violation",
    "check",
    "content_of",
    "read",
    "replay",
]
