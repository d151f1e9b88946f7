"""What is in a Que table and who is working on it, as the server sees it now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import attrs
import psycopg
from psycopg.rows import TupleRow, tuple_row

from hesape_postgres.que.errors import translate_errors
from hesape_postgres.que.job import QueJob, received_job
from hesape_postgres.que.keys import Instant
from hesape_postgres.que.statements import JOB_STATS, WORKER_STATES


@attrs.frozen(kw_only=True)
class JobStats:
    """The jobs of one queue and one type."""

    queue: str
    type: str
    count: int
    count_working: int
    """How many of them a session of this database holds the lock of."""
    count_errored: int
    highest_error_count: int
    oldest_run_at: datetime


@attrs.frozen(kw_only=True)
class WorkerState:
    """A job that is being worked, and the session that holds its lock."""

    job: QueJob
    """Without the lock: it is the other session's."""
    backend_pid: int
    state: str | None
    """`active`, `idle`, `idle in transaction` and so on; `None` if this user may not see it, like the rest below."""
    state_changed_at: datetime | None
    last_query: str | None
    last_query_started_at: datetime | None
    transaction_started_at: datetime | None
    waiting_on_lock: bool


def job_stats(conn: psycopg.Connection[Any]) -> list[JobStats]:
    """Numbers per queue and type, the most numerous first."""
    return [
        JobStats(
            queue=queue,
            type=job_class,
            count=count,
            count_working=working,
            count_errored=errored,
            highest_error_count=highest,
            oldest_run_at=Instant.received(oldest).as_datetime(),
        )
        for queue, job_class, count, working, errored, highest, oldest in _rows(conn, JOB_STATS)
    ]


def worker_states(conn: psycopg.Connection[Any]) -> list[WorkerState]:
    """Every job whose lock a session of this database holds, in the order of the table."""
    return [
        WorkerState(
            job=received_job(row[:7], row[7]),
            backend_pid=row[8],
            state=row[9],
            state_changed_at=_moment(row[10]),
            last_query=row[11],
            last_query_started_at=_moment(row[12]),
            transaction_started_at=_moment(row[13]),
            waiting_on_lock=row[14],
        )
        for row in _rows(conn, WORKER_STATES)
    ]


def _rows(conn: psycopg.Connection[Any], query: str) -> list[TupleRow]:
    with translate_errors("reading a Que table"):
        return psycopg.Cursor(conn, row_factory=tuple_row).execute(query).fetchall()


def _moment(data: bytes | None) -> datetime | None:
    return None if data is None else Instant.received(data).as_datetime()
