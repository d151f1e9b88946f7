"""The job itself: what a push takes, and what a worker holds while the work runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import uuid_utils

from hesape import grants, names, times
from hesape import payload as payloads
from hesape.attributes import NO_ATTRIBUTES, Attributes
from hesape.errors import AttributesInvalidError, NoNameError, NoTenantError, PriorityInvalidError
from hesape.jobs import delivery as deliveries

if TYPE_CHECKING:
    import uuid
    from datetime import datetime, timedelta

    from hesape.grants import Grant

DEFAULT_PRIORITY: Final = 100
_PRIORITIES: Final = range(-(2**15), 2**15)


@attrs.define(eq=False)
class Job:
    """One unit of work.

    `Job.new` builds one to be pushed; a queue's `pop` returns one that settles itself. Values are fields: `None` or an
    empty text means that the push, the handler or the worker decides. Jobs are equal by identity.
    """

    id: str
    name: str
    tenant: str = ""
    payload: bytes = attrs.field(default=b"{}", repr=False)
    queue: str = ""
    display_name: str = ""
    authorized_by: str = ""
    action: str = ""
    run_at: datetime | None = None
    priority: int | None = None
    attributes: Attributes = NO_ATTRIBUTES
    attempts: int = 0
    exceptions: int = 0
    last_error: str | None = attrs.field(default=None, repr=False)
    connection_name: str = ""
    _checked: bytes | None = attrs.field(default=None, repr=False)
    """The payload object that was checked: bytes don't change, so the same object needs no second look."""
    _failed: bool = attrs.field(default=False, init=False, repr=False)

    @classmethod
    def new(
        cls,
        grant: Grant,
        name: str,
        payload: object = None,
        *,
        queue: str = "",
        run_at: datetime | None = None,
        priority: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
        display_name: str = "",
        id: str | uuid.UUID | None = None,  # noqa: A002 - it is the job's id
    ) -> Self:
        """Build a job from a grant and a payload of JSON values.

        Name before tenant: `NoNameError`, `NoTenantError`. Then whatever a store would have to change is refused with
        an `InvalidError` or `PayloadTooLargeError`. An explicit queue wins over the attribute's.
        """
        data = payloads.encode(payload)
        return cls._built(grant, name, data, queue, run_at, priority, attributes, display_name, id)

    @classmethod
    def raw(
        cls,
        grant: Grant,
        name: str,
        payload: bytes,
        *,
        queue: str = "",
        run_at: datetime | None = None,
        priority: int | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
        display_name: str = "",
        id: str | uuid.UUID | None = None,  # noqa: A002
    ) -> Self:
        """As `new`, of bytes that are JSON already; they are stored unchanged (P2, P3)."""
        data = payloads.check(payload)
        return cls._built(grant, name, data, queue, run_at, priority, attributes, display_name, id)

    @classmethod
    def _built(
        cls,
        grant: Grant,
        name: str,
        data: bytes,
        queue: str,
        run_at: datetime | None,
        priority: int | None,
        attributes: Attributes,
        display_name: str,
        job_id: str | uuid.UUID | None,
    ) -> Self:
        if not name:
            raise NoNameError
        tenant, action, subject = grants.facts(grant)
        if not tenant:
            raise NoTenantError
        if run_at is not None:
            run_at = times.from_us(times.to_us(run_at))
        check_priority(priority)
        check_attributes(attributes)
        return cls(
            new_id() if job_id is None else names.check_id(job_id),
            names.check_text("job name", name),
            tenant,
            data,
            names.check_queue(queue or attributes.queue) if queue or attributes.queue else "",
            names.check_text("display name", display_name, empty=True),
            subject,
            action,
            run_at,
            priority,
            attributes,
            checked=data,
        )

    # What the attributes say; zero or None leaves it to the worker.

    @property
    def max_tries(self) -> int:
        """Deliveries before it is parked; negative: for ever."""
        return self.attributes.tries

    @property
    def max_exceptions(self) -> int:
        """Failures before it is parked."""
        return self.attributes.max_exceptions

    @property
    def timeout(self) -> float:
        """Seconds that its handler may run; negative: no limit."""
        return self.attributes.timeout

    @property
    def retry_until(self) -> datetime | None:
        """The moment after which it isn't retried: the attribute's, moved by a retry from the failed list (F2)."""
        until = self.attributes.retry_until
        delivery = deliveries.find(self)
        if until is None or delivery is None or not delivery.retry_shift_us:
            return until
        return times.from_us(times.to_us(until) + delivery.retry_shift_us)

    @property
    def should_fail_on_timeout(self) -> bool | None:
        """Whether running past the timeout parks it."""
        return self.attributes.fail_on_timeout

    def backoff(self) -> float | None:
        """Seconds to wait should this delivery fail; `None`: the worker's schedule decides."""
        delivery = deliveries.find(self)
        before = self.exceptions if delivery is None else delivery.exceptions_before
        return self.attributes.backoff_for(before + 1)

    @property
    def resolved_name(self) -> str:
        """The name to show: the display name, else the name."""
        return self.display_name or self.name

    @property
    def resolved_class(self) -> str:
        """The name of the work behind a wrapper, else the name."""
        return self.attributes.wraps or self.name

    def decode(self, as_: Any = None) -> Any:
        """The payload as JSON values, or structured as a type by cattrs; a misfit raises and names the job."""
        value = payloads.decode(self.payload)
        if as_ is None:
            return value
        from hesape import structure

        return structure.structure(value, as_, f"job {self.id} ({self.resolved_name})")

    # How it stands.

    @property
    def is_released(self) -> bool:
        """Whether it was put back."""
        return deliveries.kind_of(self) == "release"

    @property
    def is_deleted(self) -> bool:
        """Whether it was removed or parked."""
        return deliveries.kind_of(self) in {"delete", "fail"}

    @property
    def has_failed(self) -> bool:
        """Whether it was parked or marked as failed."""
        return self._failed

    @property
    def is_settled(self) -> bool:
        """Whether it was released, removed or parked."""
        return bool(deliveries.kind_of(self))

    # Settling (S). Each raises `DetachedError` for a job that didn't come off a queue.

    def release(self, delay: float | timedelta = 0, *, spent: bool = True, tx: object = None) -> None:
        """Put it back, due after `delay`; with `spent=False` the delivery doesn't count as an attempt."""
        times.delay_us(delay)
        deliveries.settle(self, "release", lambda driver: driver.release_job(self, delay, spent=spent, tx=tx), tx)

    def delete(self, *, tx: object = None) -> None:
        """Remove it: the work is done. `LeaseLostError` when the delivery is no longer current."""
        deliveries.settle(self, "delete", lambda driver: deliveries.delete_one(driver, self, tx), tx)

    def fail(self, cause: BaseException | str | None = None, *, tx: object = None) -> None:
        """Park it: it is delivered no more and listed with its cause; `None` keeps the last error."""
        deliveries.settle(self, "fail", lambda driver: driver.fail_job(self, cause, tx=tx), tx)
        self._failed = True

    def extend(self, lease: float | timedelta) -> datetime:
        """Move the deadline to the later of itself and now + `lease`, and return it (L5)."""
        return deliveries.extend_one(self, lease)

    def mark_as_failed(self) -> None:
        """Record that the work failed without telling the store; the worker then deletes it (S6)."""
        self._failed = True

    def record(self) -> JobRecord:
        """What its delivery holds: deadline and token. `DetachedError` without a delivery."""
        delivery = deliveries.attached(self)
        deadline = delivery.reserved_until_us
        return JobRecord(self, None if deadline is None else times.from_us(deadline), delivery.token)

    def __copy__(self) -> Job:
        """A copy that no queue knows, so that it can't settle what this one holds."""
        return Job(*(getattr(self, field.name) for field in attrs.fields(Job) if field.init))

    def __deepcopy__(self, memo: object) -> Job:
        """As a copy: nothing that a job holds can change."""
        return self.__copy__()


DatabaseJob = Job
SyncJob = Job


@attrs.define
class JobRecord:
    """A job while a driver holds it, with what a handler has no use for."""

    job: Job
    reserved_until: datetime | None
    token: bytes = attrs.field(repr=False)

    def increment(self) -> int:
        """Count this delivery and return the new count, 1 for the first."""
        self.job.attempts += 1
        return self.job.attempts

    def touch(self, lease: float | timedelta) -> datetime | None:
        """Stamp the deadline forward by `lease` and return it; a lease of 0 or less leaves it alone (L5)."""
        ahead = times.seconds(lease, "lease")
        if ahead > 0:
            until = times.from_us(time.time_ns() // 1000 + round(ahead * 1_000_000))
            self.reserved_until = until if self.reserved_until is None else max(self.reserved_until, until)
        return self.reserved_until


class JobName:
    """Reads the several names of a job."""

    @staticmethod
    def parse(name: str) -> tuple[str, str]:
        """`("SendInvoice", "handle")` for `SendInvoice@handle`; without an `@` the method is `fire`."""
        before, _, method = name.partition("@")
        return before, method or "fire"

    @staticmethod
    def resolve(job: Job) -> str:
        """The name to show."""
        return job.resolved_name

    @staticmethod
    def resolve_class_name(job: Job) -> str:
        """The name of the work behind a wrapper."""
        return job.resolved_class


def new_id() -> str:
    """A job id: the text of a UUID version 7 (I1)."""
    return str(uuid_utils.uuid7())


def check_priority(priority: int | None) -> int:
    """Return a priority, 100 for `None`; `PriorityInvalidError` outside int16."""
    if priority is None:
        return DEFAULT_PRIORITY
    if isinstance(priority, int) and not isinstance(priority, bool):
        number = int.__int__(priority)  # a subclass would answer for its own size
        if number in _PRIORITIES:
            return number
    message = f"priority {priority!r}: expected a whole number from -32768 to 32767"
    raise PriorityInvalidError(message)


def check_attributes(attributes: object) -> None:
    """Raise `AttributesInvalidError` for anything but `Attributes`."""
    if type(attributes) is not Attributes:
        message = f"attributes: expected hesape.Attributes, found {type(attributes).__name__}"
        raise AttributesInvalidError(message)
