"""The way in: `authorized`, then `prepare`, then a `PreparedJob`, which is all that a driver stores."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple, Never, NoReturn, Self
from weakref import WeakKeyDictionary

from hesape import envelope, grants, names, times
from hesape import payload as payloads
from hesape.errors import ForgedError, NoNameError, NoTenantError
from hesape.jobs.job import DEFAULT_PRIORITY, Job, check_attributes, check_priority
from hesape.records import NewRow, Unique

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from hesape.grants import Grant

DEFAULT_QUEUE: Final = "default"
"""Where a job goes when nobody said otherwise."""


def authorized(grant: Grant, job: Job) -> None:
    """Raise unless `job` may be pushed under `grant` (G2).

    In this order: `NoTenantError`, `NoNameError`, `ForgedError` for another tenant, another action, another author,
    and `PayloadTooLargeError` last, since a forged and oversized job is a forged job.
    """
    _match(grants.facts(grant), job)


def _match(granted: tuple[str, str, str], job: Job) -> None:
    tenant, action, subject = granted
    if not tenant:
        raise NoTenantError
    if not job.name:
        raise NoNameError
    if job.tenant and job.tenant != tenant:
        _forged("tenant", job.tenant, tenant)
    if job.action and job.action != action:
        _forged("action", job.action, action)
    if job.authorized_by and job.authorized_by != subject:
        _forged("author", job.authorized_by, subject)
    if isinstance(job.payload, bytes):
        payloads.check_size(job.payload)


def _forged(what: str, claimed: object, granted: str) -> Never:
    message = f"the job claims the {what} {claimed!r}, the grant carries {granted!r}"
    raise ForgedError(message)


class PreparedJob:
    """A job that passed `prepare`, frozen as it will be stored. Only `prepare` makes one; a driver stores nothing else.

    It is an empty handle, like a `Grant`: what it stands for can't be edited.
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, _prepared: Never) -> Self:
        """Refuse: prepared jobs come from `prepare`."""
        raise ForgedError(_NOT_PREPARED)

    def __init_subclass__(cls, **_: object) -> None:
        """Refuse."""
        raise ForgedError(_NOT_PREPARED)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise ForgedError(_NOT_PREPARED)

    @property
    def job(self) -> Job:
        """The job as it will be stored, its empty fields filled."""
        content, row = _prepared(self)
        run_at = None if row.run_at_us is None else times.from_us(row.run_at_us)
        return Job(
            content.id,
            content.name,
            content.tenant,
            content.payload,
            content.queue,
            content.display_name,
            content.authorized_by,
            content.action,
            run_at,
            row.priority,
            content.attributes,
            checked=content.payload,
        )


_NOT_PREPARED = "a PreparedJob comes from hesape.prepare alone; push through a Queue, which checks the grant"


class _Prepared(NamedTuple):
    content: envelope.Content
    row: NewRow


def _preparer() -> tuple[Callable[[_Prepared], PreparedJob], Callable[[object], _Prepared]]:
    prepared: WeakKeyDictionary[PreparedJob, _Prepared] = WeakKeyDictionary()

    def keep(contents: _Prepared) -> PreparedJob:
        handle = object.__new__(PreparedJob)
        prepared[handle] = contents
        return handle

    def read(handle: object) -> _Prepared:
        found = prepared.get(handle) if type(handle) is PreparedJob else None
        if found is None:
            message = f"found {type(handle).__name__}: {_NOT_PREPARED}"
            raise ForgedError(message)
        return found

    return keep, read


_keep, _prepared = _preparer()


def prepared_row(job: object) -> NewRow:
    """What a store receives of a prepared job; `ForgedError` for anything that `prepare` didn't make (G6)."""
    return _prepared(job).row


def prepare(
    grant: Grant,
    job: Job,
    *,
    delay: float | timedelta = 0,
    later: bool = False,
    queue: str = "",
    keys: envelope.Keys = envelope.NO_KEYS,
) -> PreparedJob:
    """Check `job` under `grant`, fill what is empty, and freeze the result (G2, G4).

    Tenant, action and author come from the grant, the queue is `queue`, the job's, its attribute's or `default`, the
    priority 100. After `authorized` everything is checked again that a handler may have edited, and raises an
    `InvalidError`. A `delay` stays a delay, resolved by the store's clock; with it `run_at` is left out. `later`: it
    counts even if it is 0 or negative (T3).
    """
    tenant, action, subject = granted = grants.facts(grant)
    _match(granted, job)
    attributes, data = job.attributes, job.payload  # read once: another thread may edit the job meanwhile
    check_attributes(attributes)
    if not (data is job._checked and type(data) is bytes and len(data) <= payloads.MAX_PAYLOAD):  # noqa: SLF001
        data = payloads.check(data)
    content = envelope.Content(
        names.check_id(job.id),
        tenant,
        action,
        subject,
        names.check_text("job name", job.name),
        names.check_text("display name", job.display_name, empty=True),
        names.check_queue(queue or job.queue or attributes.queue or DEFAULT_QUEUE),
        attributes,
        data,
    )
    wait_us = times.delay_us(delay) if delay != 0 else 0
    row = NewRow(
        content.id,
        envelope.encode(content, keys),
        tenant,
        content.name,
        content.queue,
        DEFAULT_PRIORITY if job.priority is None else check_priority(job.priority),
        None if later or wait_us or job.run_at is None else times.to_us(job.run_at),
        wait_us,
        _unique(content) if attributes.unique_for else None,
    )
    return _keep(_Prepared(content, row))


def _unique(content: envelope.Content) -> Unique:
    wanted = content.attributes.unique_key
    what = ["key", wanted] if wanted else ["payload", content.name, hashlib.sha256(content.payload).hexdigest()]
    return Unique(stored_key("unique", content.tenant, *what), round(content.attributes.unique_for * 1_000_000))


def stored_key(kind: str, *parts: str) -> str:
    """The key of a lock, counter, flag or uniqueness in a store: short, ASCII, and without collisions (P5)."""
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return f"{kind}:{hashlib.sha256(joined.encode(errors='surrogatepass')).hexdigest()}"
