"""Looking at the store, and repairing what failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hesape.errors import HesapeError, JobNotFoundError, NotFailedError
from hesape.records import Counts, Row
from hesape_redis import keys, records
from hesape_redis.link import Link
from hesape_redis.scripts import ALL


def counts(link: Link, queue: str) -> Counts:
    """How many jobs are due, not due, reserved and failed (C1)."""
    return Counts(*link.run(ALL["counts"], queue))


def queues(link: Link) -> list[str]:
    """The queues that have a job or are paused."""
    return sorted(queue.decode() for queue in link.run(ALL["queues"]))


def oldest_pending(link: Link, queue: str) -> int | None:
    """When the job that waits longest became due (C1)."""
    due = link.run(ALL["oldest_pending"], queue)
    return None if due is None else int(due)


def failed(
    link: Link, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None
) -> list[Row]:
    """Failed jobs, newest first, after a cursor (F1)."""
    cursor = () if before is None else (f"{before[0]:018d}{before[1]}",)
    found = link.run(ALL["failed"], keys.failed_list(tenant, queue), limit, *cursor)
    return [records.failed_row(*row) for row in found]


def find(link: Link, tenant: str | None, job_id: str) -> Row:
    """One failed job (F3)."""
    answer = link.run(ALL["find"], *_scope(tenant), job_id)
    if answer[0] != b"found":
        raise _fault(answer, tenant, [job_id])
    return records.failed_row(*answer[1:])


def retry(link: Link, tenant: str | None, ids: Sequence[str]) -> None:
    """Put failed jobs back, all or nothing (F2)."""
    answer = link.run(ALL["retry"], *_scope(tenant), *ids)
    if answer is not None:
        raise _at(_fault(answer, tenant, ids), answer)


def forget(link: Link, tenant: str | None, ids: Sequence[str]) -> int:
    """Remove failed jobs, all or nothing (F4)."""
    answer = link.run(ALL["forget"], *_scope(tenant), *ids)
    if isinstance(answer, list):
        raise _at(_fault(answer, tenant, ids), answer)
    return int(answer)


def prune(link: Link, older_than_us: int | None) -> int:
    """Remove the jobs that failed longer than that ago, or all (F4)."""
    return int(link.run(ALL["prune"], *(() if older_than_us is None else (older_than_us,))))


def _scope(tenant: str | None) -> tuple[str, str]:
    return ("0", "") if tenant is None else ("1", tenant)


def _fault(answer: list[Any], tenant: str | None, ids: Sequence[str]) -> HesapeError:
    kind, position = answer
    if kind == b"live":
        return NotFailedError(f"job {ids[position]} hasn't failed: it is still to be done")
    scope = "" if tenant is None else f" for the tenant {tenant!r}"
    return JobNotFoundError(f"there is no failed job {ids[position]}{scope}")


def _at(error: HesapeError, answer: list[Any]) -> HesapeError:
    error.index = answer[1]
    return error
