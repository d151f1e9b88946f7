"""Looking and repairing: counts, the failed list, queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hesape.errors import HesapeError, JobNotFoundError, NotFailedError
from hesape.records import Counts, Row
from hesape_mysql.pool import OwnSession
from hesape_mysql.records import NEVER_US, State, job_id, raw_ids, tenant_digest, text, unpack, uuid, uuids
from hesape_mysql.statements import (
    COUNTS,
    DELETE_FAILED,
    DELETE_IDS,
    DELETE_LIVE,
    FAILED_OF_QUEUE,
    FAILED_OF_TENANT,
    FIND,
    FIND_ALL,
    LIVE,
    OLD_FAILED,
    OLDEST,
    QUEUES,
    RETRY,
    Statements,
)

_AT_ONCE: Final = 1_000
_FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"


def counts(session: OwnSession, statements: Statements, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed (C1)."""
    found = {state: [0, 0] for state in State}
    for state, ahead, number in session.ask(statements[COUNTS] % {"queue": text(queue)})[0].rows:
        found[State(state)][ahead] += number
    ready, scheduled, reserved, parked = (found[state] for state in State)
    return Counts(sum(ready) + scheduled[0] + reserved[0], scheduled[1], reserved[1], sum(parked))


def queues(session: OwnSession, statements: Statements) -> list[str]:
    """The queues that have a job or are paused."""
    return sorted(row[0] for row in session.ask(statements[QUEUES])[0].rows)


def oldest_pending(session: OwnSession, statements: Statements, queue: str) -> int | None:
    """When the job that waits longest became due (C1)."""
    rows = session.ask(statements[OLDEST] % {"queue": text(queue), "never": NEVER_US})[0].rows
    return None if rows[0][0] == NEVER_US else int(rows[0][0])


def failed(
    session: OwnSession,
    statements: Statements,
    tenant: str | None,
    *,
    queue: str | None,
    limit: int,
    before: tuple[int, str] | None,
) -> list[Row]:
    """Failed jobs, newest first, after a cursor (F1)."""
    upto_us, before_id = before or (-1, _FIRST_ID)
    values: dict[str, object] = {
        "limit": limit,
        "failed_us": upto_us,
        "upto_us": NEVER_US if before is None else upto_us,
        "id": uuid(before_id),
    }
    if tenant is not None:
        values |= {
            "holder": tenant_digest(tenant),
            "tenant": text(tenant),
            "any_queue": queue is None,
            "queue": text(queue or ""),
        }
        return [unpack(row[0]) for row in session.ask(statements[FAILED_OF_TENANT] % values)[0].rows]
    wanted = queues(session, statements) if queue is None else [queue]
    if not wanted:
        return []
    parts = [statements[FAILED_OF_QUEUE] % {**values, "queue": text(name)} for name in wanted]
    sql = f"{' union all '.join(parts)} order by failed_us desc, id desc limit {limit}"
    return [unpack(row[0]) for row in session.ask(sql)[0].rows]


def find(session: OwnSession, statements: Statements, tenant: str | None, wanted: str) -> Row:
    """One failed job; another tenant's isn't found (F3, G7)."""
    rows = session.ask(statements[FIND] % {"id": uuid(wanted)})[0].rows
    row = unpack(rows[0][0]) if rows else None
    if row is None or tenant not in {None, row.tenant}:
        raise _not_found(wanted, tenant)
    if row.failed_us is None:
        raise _not_failed(wanted)
    return row


def retry(session: OwnSession, statements: Statements, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back as they were pushed, due now, all or nothing (F2)."""
    if not ids:
        return
    _lock_failed(session, statements, tenant, ids)
    values = {"ids": uuids(sorted(set(ids))), "in_order": uuids(ids)}
    session.ask(f"{statements[RETRY] % values}; commit", commits=True)


def forget(session: OwnSession, statements: Statements, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs, all or nothing (F4)."""
    if not ids:
        return 0
    _lock_failed(session, statements, tenant, ids)
    sql = f"{statements[DELETE_IDS] % {'ids': uuids(sorted(set(ids)))}}; commit"
    return session.ask(sql, commits=True)[0].affected


def _lock_failed(session: OwnSession, statements: Statements, tenant: str | None, ids: Sequence[str]) -> None:
    rows = session.ask(f"begin; {statements[FIND_ALL] % {'ids': uuids(sorted(set(ids)))}}")[1].rows
    found = {job_id(raw): (owner, State(state)) for raw, owner, state in rows}
    for index, wanted in enumerate(ids):
        error: HesapeError | None = None
        owner, state = found.get(wanted, (None, None))
        if state is None or tenant not in {None, owner}:
            error = _not_found(wanted, tenant)
        elif state is not State.FAILED:
            error = _not_failed(wanted)
        if error is not None:
            error.index = index
            raise error


def _not_found(wanted: str, tenant: str | None) -> JobNotFoundError:
    return JobNotFoundError(
        f"there is no failed job {wanted}" + ("" if tenant is None else f" for the tenant {tenant!r}")
    )


def _not_failed(wanted: str) -> NotFailedError:
    return NotFailedError(f"job {wanted} hasn't failed")


def prune(session: OwnSession, statements: Statements, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all (F4)."""
    age_us = -1 if older_than_us is None else older_than_us
    wanted = queues(session, statements)
    found = [
        row[0]
        for queue in wanted
        for row in session.ask(statements[OLD_FAILED] % {"queue": text(queue), "age_us": age_us})[0].rows
    ]
    return _delete(session, statements[DELETE_FAILED], found)


def clear(session: OwnSession, statements: Statements, queue: str) -> int:
    """Remove what is pending, delayed and reserved (C2)."""
    found = [row[0] for row in session.ask(statements[LIVE] % {"queue": text(queue)})[0].rows]
    return _delete(session, statements[DELETE_LIVE], found)


def _delete(session: OwnSession, statement: str, found: Sequence[bytes]) -> int:
    """Delete by primary key, ascending, in one transaction; how many."""
    if not found:
        return 0
    session.ask("begin")
    gone = 0
    for ids in _ascending(found):
        gone += session.ask(statement % {"ids": raw_ids(ids)})[0].affected
    session.ask("commit", commits=True)
    return gone


def _ascending(found: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    ordered = sorted(found)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]
