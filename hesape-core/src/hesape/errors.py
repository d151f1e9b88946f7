"""Every refusal and failure that hesape raises, with a stable code.

    HesapeError
    ├── ForbiddenError                 the policy said no, or a grant doesn't cover this
    ├── NoTenantError                  a grant without a tenant, or one that nobody issued
    ├── ForgedError                    a job, a grant or a store call that claims what was not granted
    ├── InvalidError (ValueError)      a value that no store may accept
    │   ├── NoNameError
    │   ├── NameInvalidError           tenant, queue, action, job name, author, display name, connection
    │   ├── IdInvalidError
    │   ├── TimeInvalidError           naive or out of range
    │   ├── PriorityInvalidError
    │   ├── AttributesInvalidError
    │   ├── ArgumentInvalidError       n < 1, lease <= 0, ...
    │   └── PayloadInvalidError        not JSON as P2 has it; `.path` says where
    ├── PayloadTooLargeError
    ├── BulkTooLargeError
    ├── DuplicateJobError              the id is stored with other content
    ├── AlreadyQueuedError             `unique_for` holds its key
    ├── DetachedError                  the job never came off a queue
    ├── AlreadySettledError
    ├── LeaseLostError                 the delivery is no longer current
    ├── LockHeldError
    ├── JobNotFoundError (LookupError)
    ├── NotFailedError
    ├── UnsupportedError               the driver doesn't claim this capability
    ├── TransactionRefusedError        a lent connection that can't be joined
    ├── RecordError                    a stored record that can't be run here
    │   ├── TamperedError              it was changed behind the driver's back: park it
    │   └── UnreadableError            another key or a newer version may read it: hand it back
    ├── StoreError
    │   ├── StoreUnavailableError      surely nothing was written; try again
    │   │   └── StoreBusyError         a deadlock or a serialization failure, rolled back
    │   ├── StoreRefusedError          full, read-only or broken: nothing was written, and a retry won't help soon
    │   ├── OutcomeUnknownError        the request was sent and no answer came
    │   └── SchemaError                the tables are missing, too old or too new
    ├── ConfigError
    ├── DriverError (LookupError)      no such driver can be opened
    │   ├── DriverNotInstalledError
    │   ├── DriverUnknownError
    │   ├── DriverBrokenError
    │   ├── DriverConflictError
    │   ├── DriverBlockedError
    │   └── DriverIncompatibleError
    ├── HandlerError                   an App was told something it can't do
    │   ├── HandlerUnknownError
    │   └── ArgumentsMismatchError     a payload that doesn't fit its handler's parameters
    ├── FailJob                        raised by a handler: park this job at once
    ├── JobTimeoutError
    ├── AttemptsExceededError          parked before its handler ran
    ├── DeadlineExceededError          past `retry_until`
    └── ActionMismatchError            the job's action isn't its handler's (G9)

A class's docstring is its default message. `retryable` says whether the same call can succeed later without a change.
Errors survive pickling: everything they carry is in `args` and `__dict__`.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ActionMismatchError",
    "AlreadyQueuedError",
    "AlreadySettledError",
    "ArgumentInvalidError",
    "ArgumentsMismatchError",
    "AttemptsExceededError",
    "AttributesInvalidError",
    "BulkTooLargeError",
    "ConfigError",
    "DeadlineExceededError",
    "DetachedError",
    "DriverBlockedError",
    "DriverBrokenError",
    "DriverConflictError",
    "DriverError",
    "DriverIncompatibleError",
    "DriverNotInstalledError",
    "DriverUnknownError",
    "DuplicateJobError",
    "FailJob",
    "ForbiddenError",
    "ForgedError",
    "HandlerError",
    "HandlerUnknownError",
    "HesapeError",
    "IdInvalidError",
    "InvalidError",
    "JobNotFoundError",
    "JobTimeoutError",
    "LeaseLostError",
    "LockHeldError",
    "NameInvalidError",
    "NoNameError",
    "NoTenantError",
    "NotFailedError",
    "OutcomeUnknownError",
    "PayloadInvalidError",
    "PayloadTooLargeError",
    "PriorityInvalidError",
    "RecordError",
    "SchemaError",
    "StoreBusyError",
    "StoreError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "TamperedError",
    "TimeInvalidError",
    "TransactionRefusedError",
    "UnreadableError",
    "UnsupportedError",
]


class HesapeError(Exception):
    """Something in hesape went wrong."""

    code: ClassVar[str] = "error"
    retryable: ClassVar[bool] = False
    index: int | None = None
    """The position of the faulty job in a bulk, counted from 0."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip().partition("\n")[0])


class ForbiddenError(HesapeError):
    """This subject may not do this."""

    code = "forbidden"


class NoTenantError(HesapeError):
    """The grant carries no tenant, and a job without one can't be scoped."""

    code = "no-tenant"


class ForgedError(HesapeError):
    """The job doesn't match the grant that pushes it."""

    code = "forged"


class InvalidError(HesapeError, ValueError):
    """A value that no store may accept."""

    code = "invalid"


class NoNameError(InvalidError):
    """A job without a name can't be routed to a handler."""

    code = "no-name"


class NameInvalidError(InvalidError):
    """A name has a character or a length that isn't allowed."""

    code = "name-invalid"


class IdInvalidError(InvalidError):
    """A job id must be the canonical lower-case text of a UUID."""

    code = "id-invalid"


class TimeInvalidError(InvalidError):
    """A time must be an aware datetime, a delay a number of seconds or a timedelta."""

    code = "time-invalid"


class PriorityInvalidError(InvalidError):
    """A priority is a whole number from -32768 to 32767; lower runs sooner."""

    code = "priority-invalid"


class AttributesInvalidError(InvalidError):
    """An attribute of a job is out of its range."""

    code = "attributes-invalid"


class ArgumentInvalidError(InvalidError):
    """An argument is out of its range."""

    code = "argument-invalid"


class PayloadInvalidError(InvalidError):
    """The payload isn't JSON that every store keeps unchanged."""

    code = "payload-invalid"

    def __init__(self, message: str | None = None, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class PayloadTooLargeError(HesapeError):
    """The payload is larger than a queue stores."""

    code = "payload-too-large"


class BulkTooLargeError(HesapeError):
    """A bulk holds at most 10,000 jobs and 16 MiB."""

    code = "bulk-too-large"


class DuplicateJobError(HesapeError):
    """This id is stored already, with other content."""

    code = "duplicate-job"


class AlreadyQueuedError(HesapeError):
    """A job with this unique key was pushed before, and its time isn't over."""

    code = "already-queued"


class DetachedError(HesapeError):
    """This job never came off a queue, so there is nothing to release, delete or fail."""

    code = "detached"


class AlreadySettledError(HesapeError):
    """This job was settled in another way before."""

    code = "already-settled"


class LeaseLostError(HesapeError):
    """The lease of this delivery is over; nothing was changed."""

    code = "lease-lost"


class LockHeldError(HesapeError):
    """Somebody else holds the lock."""

    code = "lock-held"
    retryable = True


class JobNotFoundError(HesapeError, LookupError):
    """There is no such job for this tenant."""

    code = "job-not-found"


class NotFailedError(HesapeError):
    """This job hasn't failed."""

    code = "not-failed"


class UnsupportedError(HesapeError):
    """This driver doesn't offer that."""

    code = "unsupported"


class TransactionRefusedError(HesapeError):
    """The lent connection can't be joined."""

    code = "transaction-refused"


class RecordError(HesapeError):
    """A stored record can't be run here."""

    code = "record"


class TamperedError(RecordError):
    """The stored record was changed behind the driver's back."""

    code = "tampered"


class UnreadableError(RecordError):
    """The stored record needs another key or a newer version of hesape."""

    code = "unreadable"
    retryable = True


class StoreError(HesapeError):
    """The store failed."""

    code = "store"


class StoreUnavailableError(StoreError):
    """The store can't be reached; nothing was written."""

    code = "store-unavailable"
    retryable = True


class StoreBusyError(StoreUnavailableError):
    """The store rolled this back because of a conflict; nothing was written."""

    code = "store-busy"


class StoreRefusedError(StoreError):
    """The store is full, read-only or damaged; nothing was written."""

    code = "store-refused"


class OutcomeUnknownError(StoreError):
    """The connection broke before the answer came: it may have been written or not."""

    code = "outcome-unknown"
    retryable = True


class SchemaError(StoreError):
    """The store's tables don't fit this version; run `hesape migrate`."""

    code = "schema"


class ConfigError(HesapeError):
    """The configuration can't be used."""

    code = "config"


class DriverError(HesapeError, LookupError):
    """No such driver can be opened."""

    code = "driver"

    def __init__(self, message: str | None = None, name: str = "", distribution: str = "") -> None:
        super().__init__(message)
        self.name = name
        self.distribution = distribution


class DriverNotInstalledError(DriverError):
    """The driver's package isn't installed."""

    code = "driver-not-installed"


class DriverUnknownError(DriverError):
    """No driver has this name."""

    code = "driver-unknown"


class DriverBrokenError(DriverError):
    """The driver's package can't be loaded."""

    code = "driver-broken"


class DriverConflictError(DriverError):
    """Two packages offer a driver of this name."""

    code = "driver-conflict"


class DriverBlockedError(DriverError):
    """The environment blocks this driver."""

    code = "driver-blocked"


class DriverIncompatibleError(DriverError):
    """The driver was written for another version of the contract."""

    code = "driver-incompatible"


class HandlerError(HesapeError):
    """The application was told something that it can't do."""

    code = "handler"


class HandlerUnknownError(HandlerError):
    """No handler is registered for this job."""

    code = "handler-unknown"


class ArgumentsMismatchError(HandlerError):
    """The payload doesn't fit the handler's parameters."""

    code = "arguments-mismatch"


class FailJob(HesapeError):  # noqa: N818 - it is raised as an instruction, not reported as a fault
    """The handler asks for its job to be parked at once."""

    code = "fail-job"


class JobTimeoutError(HesapeError):
    """The handler ran longer than its timeout."""

    code = "job-timeout"


class AttemptsExceededError(HesapeError):
    """The job was delivered more often than its tries allow."""

    code = "attempts-exceeded"


class DeadlineExceededError(HesapeError):
    """The job's retry_until has passed."""

    code = "deadline-exceeded"


class ActionMismatchError(HesapeError):
    """The job's action isn't the one that its handler runs under."""

    code = "action-mismatch"
