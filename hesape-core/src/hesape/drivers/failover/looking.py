"""Looks and repairs over several stores: all are asked, and all must answer, else the answer would be a part of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from hesape.errors import JobNotFoundError, NotFailedError, OutcomeUnknownError, StoreError
from hesape.records import Counts, Row, WorkerRow

if TYPE_CHECKING:
    from hesape.driver import Driver
    from hesape.drivers.failover.member import Member

T = TypeVar("T")
K = TypeVar("K")
M = TypeVar("M")


def every(members: Sequence[Member], call: Callable[[Driver], T]) -> list[T]:
    """The answers of all members; `StoreError` names the one that has none."""
    return [_asked(member, call) for member in members]


def some(members: Sequence[Member], call: Callable[[Driver], T]) -> list[T]:
    """The answers of the members that can be reached, at least one, each asked once."""
    answers: list[T] = []
    failure: StoreError | None = None
    for member in [member for member in members if member.reachable] or members:
        try:
            answers.append(member.ask(lambda _, driver=member.driver: call(driver), tries=1))  # type: ignore[misc]
        except StoreError as error:
            failure = error
    if failure is not None and not answers:
        raise failure
    return answers


def one_by_one(parts: Mapping[M, Sequence[K]], call: Callable[[M, Sequence[K]], T]) -> list[T]:
    """Do a part in each member. When a later one fails, what was done before makes the outcome unknown."""
    done: list[T] = []
    for member, part in parts.items():
        try:
            done.append(call(member, part))
        except StoreError as error:
            if not done:
                raise
            message = f"{len(done)} of {len(parts)} stores have done their part, the next one hasn't: {error}"
            raise OutcomeUnknownError(message) from error
    return done


def counts(members: Sequence[Member], queue: str) -> Counts:
    """The sums (C1)."""
    found = every(members, lambda driver: driver.counts(queue))
    return Counts(
        sum(one.pending for one in found),
        sum(one.delayed for one in found),
        sum(one.reserved for one in found),
        sum(one.failed for one in found),
    )


def workers(members: Sequence[Member]) -> list[WorkerRow]:
    """Each worker once: it is registered with every member."""
    found: dict[str, WorkerRow] = {}
    for row in chain.from_iterable(every(members, lambda driver: driver.workers())):
        known = found.get(row.worker, row._replace(held=0))
        since = [moment for moment in (known.since_us, row.since_us) if moment is not None]
        beat_us = max(known.beat_us, row.beat_us)
        found[row.worker] = WorkerRow(row.worker, beat_us, known.held + row.held, min(since, default=None))
    return [found[name] for name in sorted(found)]


def failed(
    members: Sequence[Member], tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """Newest first, over all members (F1)."""
    found = every(members, lambda driver: driver.failed(tenant, queue=queue, limit=limit, before=before))
    rows = sorted(chain.from_iterable(found), key=lambda row: (row.failed_us or 0, row.id), reverse=True)
    return rows[:limit]


def find(members: Sequence[Member], tenant: str | None, job_id: str) -> tuple[Member, Row]:
    """A failed job, and the member that has it (F3)."""
    failure: StoreError | None = None
    refusal: JobNotFoundError | NotFailedError | None = None
    for member in members:
        try:
            return member, _asked(member, lambda driver: driver.find(tenant, job_id))
        except JobNotFoundError as error:
            refusal = refusal or error
        except NotFailedError as error:
            refusal = error
        except StoreError as error:
            failure = error
    if isinstance(refusal, NotFailedError) or failure is None:
        raise refusal or JobNotFoundError()
    raise failure


def owners(members: Sequence[Member], tenant: str | None, ids: Sequence[str]) -> dict[Member, list[str]]:
    """Failed jobs by the member that has them; the errors of `find`, with `.index`, before anything is changed."""
    found: dict[Member, list[str]] = {}
    for index, job_id in enumerate(ids):
        try:
            member, _ = find(members, tenant, job_id)
        except (JobNotFoundError, NotFailedError) as error:
            error.index = index
            raise
        found.setdefault(member, []).append(job_id)
    return found


def _asked(member: Member, call: Callable[[Driver], T]) -> T:
    try:
        return member.ask(lambda _: call(member.driver), tries=1)
    except StoreError as error:
        error.add_note(f"asked through failover: connection {member.name}")
        raise
