"""The job, its way into a store and its way out.

This package knows no queue, no driver and no worker, so that a driver can build jobs without the ones that ship.
"""

from hesape.jobs.delivery import Delivery, Settles, attached, key_of, lease_lost, mark_deleted
from hesape.jobs.job import DEFAULT_PRIORITY, DatabaseJob, Job, JobName, JobRecord, SyncJob, new_id
from hesape.jobs.preparing import DEFAULT_QUEUE, PreparedJob, authorized, prepare, prepared_row, stored_key
from hesape.jobs.receiving import checked, grant_for, popped, received
from hesape.payload import MAX_PAYLOAD

__all__ = [
    "DEFAULT_PRIORITY",
    "DEFAULT_QUEUE",
    "MAX_PAYLOAD",
    "DatabaseJob",
    "Delivery",
    "Job",
    "JobName",
    "JobRecord",
    "PreparedJob",
    "Settles",
    "SyncJob",
    "attached",
    "authorized",
    "checked",
    "grant_for",
    "key_of",
    "lease_lost",
    "mark_deleted",
    "new_id",
    "popped",
    "prepare",
    "prepared_row",
    "received",
    "stored_key",
]
