"""The way out: a stored row becomes a job with its delivery, and the grant that the worker runs it under."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hesape import envelope, grants, names, times
from hesape.errors import TamperedError
from hesape.jobs.delivery import Delivery, Settles, attached, begin, find
from hesape.jobs.job import Job

if TYPE_CHECKING:
    from hesape.grants import Grant
    from hesape.records import Row

_MOST_EXCEPTIONS: Final = 2**31 - 2
"""One more fits every store's column, whatever somebody forged."""


def received(row: Row, token: bytes, keys: envelope.Keys = envelope.NO_KEYS, *, expires: float = 0.0) -> Job:
    """Build the job of a row that a store delivered, with its delivery, not yet attached to a driver.

    Raises `TamperedError` when the envelope or its searchable copies were changed, `UnreadableError` when another key
    or version may read it (G8).
    """
    content = checked(row, keys)
    exceptions = min(row.exceptions, _MOST_EXCEPTIONS)
    job = Job(
        content.id,
        content.name,
        content.tenant,
        content.payload,
        content.queue,
        content.display_name,
        content.authorized_by,
        content.action,
        times.from_us(row.due_us),
        row.priority,
        content.attributes,
        row.attempts,
        exceptions,
        row.last_error,
        checked=content.payload,
    )
    shift = 0 if row.retried_us is None else row.retried_us - row.pushed_us
    begin(
        job,
        Delivery(
            row.id,
            content.tenant,
            content.action,
            token,
            row.reserved_until_us,
            expires,
            exceptions,
            shift,
            row.lapses,
        ),
    )
    return job


def checked(row: Row, keys: envelope.Keys = envelope.NO_KEYS) -> envelope.Content:
    """The content of a stored row; raises as `received` does."""
    content = envelope.decode(row.envelope, keys)
    copies = (row.id, row.tenant, row.name, row.queue)
    if copies != (content.id, content.tenant, content.name, content.queue):
        message = f"the record's id, tenant, name and queue {copies!a} disagree with its envelope"
        raise TamperedError(message)
    if not names.valid_tenant(content.tenant) or not names.valid_action(content.action):
        message = f"the record has no valid tenant and action: {content.tenant!a}, {content.action!a}"
        raise TamperedError(message)
    return content


def popped(driver: Settles, connection: str, job: Job) -> Job:
    """Attach `job` to what it came off and to the name of that connection; called once, by `Queue.pop`.

    A door as strong as `system_grant`: `grant_for` answers for the tenant and the action that the job has now.
    """
    delivery = find(job)
    if delivery is None:
        delivery = Delivery(job.id, job.tenant, job.action, b"", None, 0.0, job.exceptions)
        begin(job, delivery)
    delivery.driver = driver
    job.connection_name = connection
    return job


def grant_for(job: Job) -> Grant:
    """The grant that a worker runs `job` under: the system, with the action and the tenant it was pushed with (G5).

    Only for a job that `popped` attached; another raises `DetachedError`. What a handler writes on its job doesn't
    change the answer.
    """
    delivery = attached(job)
    return grants.system_grant(delivery.action, delivery.tenant)
