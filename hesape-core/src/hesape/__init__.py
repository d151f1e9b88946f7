"""Hesape: a job queue framework in which the store is a plug.

    import hesape

    app = hesape.App()

    @app.handler("invoice.send")
    def send_invoice(job: hesape.Job, invoice_id: int) -> None: ...

    grant = hesape.authorize(InvoicePolicy(), subject, "invoice.send", invoice)
    send_invoice.push(grant, invoice_id=42)

Names are loaded when they are used, so that an import costs little; what is in `__all__` is public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from hesape import errors
from hesape.attributes import Attributes
from hesape.envelope import Keys
from hesape.errors import *  # noqa: F403 - every error is public
from hesape.grants import Grant, Policy, Subject, authorize, system_grant
from hesape.jobs import (
    DEFAULT_QUEUE,
    MAX_PAYLOAD,
    DatabaseJob,
    Job,
    JobName,
    JobRecord,
    PreparedJob,
    SyncJob,
    authorized,
    grant_for,
    popped,
    prepare,
)
from hesape.records import Counts

if TYPE_CHECKING:
    from hesape.app import App
    from hesape.context import current_grant, current_job
    from hesape.driver import CONTRACT, Capability, Driver, DriverSpec, Fact
    from hesape.failed import FailedJob
    from hesape.manager import connect
    from hesape.queue import Queue

_LAZY: Final = {
    "App": "hesape.app",
    "CONTRACT": "hesape.driver",
    "Capability": "hesape.driver",
    "Driver": "hesape.driver",
    "DriverSpec": "hesape.driver",
    "Fact": "hesape.driver",
    "FailedJob": "hesape.failed",
    "Queue": "hesape.queue",
    "connect": "hesape.manager",
    "current_grant": "hesape.context",
    "current_job": "hesape.context",
}


def __getattr__(name: str) -> object:
    """Load a public name of a heavier module on first use."""
    if name not in _LAZY:
        message = f"module 'hesape' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


__all__ = [  # noqa: PLE0604 - it takes in the errors' list
    "CONTRACT",
    "DEFAULT_QUEUE",
    "MAX_PAYLOAD",
    "App",
    "Attributes",
    "Capability",
    "Counts",
    "DatabaseJob",
    "Driver",
    "DriverSpec",
    "Fact",
    "FailedJob",
    "Grant",
    "Job",
    "JobName",
    "JobRecord",
    "Keys",
    "Policy",
    "PreparedJob",
    "Queue",
    "Subject",
    "SyncJob",
    "authorize",
    "authorized",
    "connect",
    "current_grant",
    "current_job",
    "grant_for",
    "popped",
    "prepare",
    "system_grant",
    *errors.__all__,
]
