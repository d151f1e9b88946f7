"""The failed list: what was parked, read and repaired for one tenant or, by an operator, for all (F, G7)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs

from hesape import names, retry, times
from hesape.errors import ArgumentInvalidError, HesapeError, RecordError
from hesape.jobs import checked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hesape.driver import Driver
    from hesape.envelope import Content, Keys
    from hesape.records import Row

READ: Final = "hesape.failed.read"
_MAX_PAGE: Final = 1_000
_LONGEST_MOMENT: Final = 18
"""Digits of the microseconds until the year 9999."""


@attrs.frozen(kw_only=True)
class FailedJob:
    """A failed job as a value: no grant can be made from one."""

    id: str
    name: str
    display_name: str
    queue: str
    tenant: str
    action: str
    authorized_by: str
    payload: bytes = attrs.field(repr=False)
    priority: int
    attempts: int
    exceptions: int
    last_error: str | None = attrs.field(repr=False)
    pushed_at: datetime
    failed_at: datetime
    problem: str = ""
    """Why the record can't be run here, empty when it can. Then name, queue and tenant are the searchable copies."""

    @property
    def cursor(self) -> str:
        """Where a page that ends with this job goes on: for `before=`."""
        return f"{times.to_us(self.failed_at)}:{self.id}"


class FailedList:
    """The failed jobs of one connection. `tenant` `None` is every tenant, for the operator alone."""

    def __init__(self, driver: Driver, keys: Keys) -> None:
        """Read through `driver`, checking records with `keys`."""
        self._driver = driver
        self._keys = keys

    def page(
        self, tenant: str | None, *, queue: str | None, limit: int, before: FailedJob | str | None
    ) -> list[FailedJob]:
        """Newest first; a tenant never sees a record that was tampered with (G7)."""
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MAX_PAGE:
            message = f"limit {limit!r}: expected 1 to {_MAX_PAGE}"
            raise ArgumentInvalidError(message)
        wanted = None if queue is None else names.check_queue(queue)
        cursor = _cursor(before)
        found: list[FailedJob] = []
        while len(found) < limit:
            room, after = limit - len(found), cursor
            rows = retry.insist(lambda _: self._driver.failed(tenant, queue=wanted, limit=room, before=after))  # noqa: B023
            found += [job for job in map(self._read, rows) if tenant is None or not job.problem]
            if len(rows) < room:
                break
            cursor = (rows[-1].failed_us or 0, rows[-1].id)
        return found

    def find(self, tenant: str | None, job_id: str) -> FailedJob:
        """One failed job; for a tenant, one that was tampered with raises `TamperedError`."""
        row = self._row(tenant, job_id)
        if tenant is not None:
            checked(row, self._keys)
        return self._read(row)

    def retry(self, tenant: str | None, ids: str | Sequence[str]) -> list[str]:
        """Put failed jobs back, every record checked as at pop first (G6); their ids."""
        wanted = _ids(ids)
        for index, job_id in enumerate(wanted):
            try:
                checked(self._row(tenant, job_id), self._keys)
            except HesapeError as error:
                error.index = index
                raise
        retry.insist(lambda _: self._driver.retry(tenant, wanted), once=True)
        return wanted

    def forget(self, tenant: str | None, ids: str | Sequence[str]) -> int:
        """Remove failed jobs."""
        wanted = _ids(ids)
        return retry.insist(lambda _: self._driver.forget(tenant, wanted), once=True)

    def _row(self, tenant: str | None, job_id: str) -> Row:
        wanted = names.check_id(job_id)
        return retry.insist(lambda _: self._driver.find(tenant, wanted))

    def _read(self, row: Row) -> FailedJob:
        try:
            return _failed_job(row, checked(row, self._keys))
        except RecordError as error:
            return _failed_job(row, None, f"{error.code}: {error}")


def _failed_job(row: Row, content: Content | None, problem: str = "") -> FailedJob:
    return FailedJob(
        id=row.id,
        name=row.name,
        display_name=content.display_name if content else "",
        queue=row.queue,
        tenant=row.tenant,
        action=content.action if content else "",
        authorized_by=content.authorized_by if content else "",
        payload=content.payload if content else b"",
        priority=row.priority,
        attempts=row.attempts,
        exceptions=row.exceptions,
        last_error=row.last_error,
        pushed_at=times.from_us(row.pushed_us),
        failed_at=times.from_us(row.failed_us or 0),
        problem=problem,
    )


def _ids(ids: object) -> list[str]:
    wanted = ids if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else [ids]
    return list(dict.fromkeys(names.check_id(job_id) for job_id in wanted))


def _cursor(before: FailedJob | str | None) -> tuple[int, str] | None:
    if before is None:
        return None
    text = before.cursor if isinstance(before, FailedJob) else before
    moment, _, job_id = text.partition(":")
    if not moment.isascii() or not moment.isdigit() or len(moment) > _LONGEST_MOMENT:
        message = f"before {text!r}: expected a FailedJob or its cursor"
        raise ArgumentInvalidError(message)
    return int(moment), names.check_id(job_id)
