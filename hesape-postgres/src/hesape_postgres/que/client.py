"""The client: puts jobs into a Que table and takes them out one at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import ConnectionPool

from hesape.errors import ArgumentInvalidError, StoreRefusedError, TransactionRefusedError
from hesape.times import MAX_DELAY_S
from hesape_postgres.que.args import encode_args
from hesape_postgres.que.errors import AgainError, MissingTypeError, translate_errors
from hesape_postgres.que.job import QueJob, locked_job, received_job
from hesape_postgres.que.keys import Instant, Key
from hesape_postgres.que.session import OneJob, Session
from hesape_postgres.que.statements import CHECK, INSERT, LOCK
from hesape_postgres.que.stats import JobStats, WorkerState, job_stats, worker_states

ATTEMPTS: Final = 10
"""How many lost races in a row `lock_job` bears."""

T = TypeVar("T")
RetryDelay = float | timedelta | Callable[[int], float | timedelta]


def default_retry_delay(error_count: int) -> float:
    """Que's own curve, in seconds: 4, 19, 84, 259, 628 and so on for the first errors of a job."""
    return error_count**4 + 3.0


class QueClient:
    """A client over a pool of psycopg connections.

    The pool's connections may be set up in any way; the client puts those that it takes into autocommit and returns
    them as they were. `retry_delay` is a number of seconds, a timedelta, or a function of the new error count that
    returns one. The pool can't reach the server through a transaction pooler: locks belong to sessions.
    """

    def __init__(self, pool: ConnectionPool[Any], retry_delay: RetryDelay = default_retry_delay) -> None:
        self.pool = pool
        self._retry_delay = retry_delay
        if not callable(retry_delay):
            self.delay_s(1)

    def delay_s(self, error_count: int) -> float:
        """Seconds from the error that makes `error_count` to the next run, never more than a century."""
        found = self._retry_delay(error_count) if callable(self._retry_delay) else self._retry_delay
        delay = found.total_seconds() if isinstance(found, timedelta) else found
        if isinstance(delay, bool) or not isinstance(delay, int | float) or math.isnan(delay):
            raise ArgumentInvalidError(f"retry_delay gave {found!r}: expected a number of seconds or a timedelta")
        return float(min(max(delay, 0), MAX_DELAY_S))

    def enqueue(self, job: QueJob) -> QueJob:
        """Store a job and return it as it was stored, committed.

        Raises `MissingTypeError`, `PayloadInvalidError`, `OutcomeUnknownError` if the connection breaks under it.
        """
        parameters = _insertion(job)
        session = Session(self.pool)
        try:
            with translate_errors("enqueueing a Que job", wrote=True):
                return _inserted(session.execute(INSERT, parameters))
        finally:
            session.close()

    def enqueue_in_tx(self, job: QueJob, tx: psycopg.Connection[Any] | psycopg.Cursor[Any]) -> QueJob:
        """Store a job in the caller's transaction, which the caller commits or rolls back.

        Raises `TransactionRefusedError` for a connection that would commit at once, or is of another kind.
        """
        parameters = _insertion(job)
        conn = _lent(tx)
        with translate_errors("enqueueing a Que job in the caller's transaction"):
            return _inserted(psycopg.Cursor(conn, row_factory=tuple_row).execute(INSERT, parameters))

    def lock_job(self, queue: str = "") -> QueJob | None:
        """Lock the first job of `queue` that is due and free, or return `None`.

        Raises `AgainError` after ten jobs in a row that were gone by the time they were locked, and
        `StoreUnavailableError`. Only a job keeps the connection; every other way out returns it.
        """
        session = Session(self.pool)
        job = None
        try:
            with translate_errors("locking a Que job"):
                job = self._lock(session, queue)
        except AgainError:
            raise
        except BaseException:
            session.discard()  # a lock may have been won that nobody will know of
            raise
        finally:
            if job is None:
                session.close()
        return job

    def _lock(self, session: Session, queue: str) -> QueJob | None:
        for _ in range(ATTEMPTS):
            row = session.execute(LOCK, {"queue": queue, "most": 1}).fetchone()
            if row is None:
                return None
            key = Key.received(*row[:4])
            # The lock's snapshot may be older than another worker's delete: a younger one decides.
            still = session.execute(CHECK, key.parameters()).fetchone()
            if still is not None:
                return locked_job(row, still[0], OneJob(session), self.delay_s)
            session.unlock(key.job_id)
        raise AgainError

    def job_stats(self) -> list[JobStats]:
        """How many jobs of each queue and type there are, run and fail; the most numerous first."""
        return self._look(job_stats)

    def worker_states(self) -> list[WorkerState]:
        """Which sessions are working which jobs."""
        return self._look(worker_states)

    def _look(self, query: Callable[[psycopg.Connection[Any]], list[T]]) -> list[T]:
        session = Session(self.pool)
        try:
            return query(session.conn)
        finally:
            session.close()


def _insertion(job: QueJob) -> tuple[Any, ...]:
    if not job.type:
        raise MissingTypeError
    run_at = None if job.run_at is None else Instant.at(job.run_at)
    return (job.queue, job.priority, run_at, encode_args(job.args), job.type)


def _inserted(cursor: psycopg.Cursor[TupleRow]) -> QueJob:
    row = cursor.fetchone()
    if row is None:  # a rule or a trigger of the table's owner swallowed it
        raise StoreRefusedError("the table returned no row for an enqueued Que job")
    return received_job(row)


def _lent(tx: object) -> psycopg.Connection[Any]:
    conn = tx.connection if isinstance(tx, psycopg.Cursor) else tx
    if not isinstance(conn, psycopg.Connection):
        raise TransactionRefusedError(f"expected a psycopg connection or cursor to join, found {type(tx).__name__}")
    if conn.autocommit and conn.info.transaction_status == TransactionStatus.IDLE:
        message = "the lent connection is in autocommit outside a transaction: the job would be committed at once"
        raise TransactionRefusedError(f"{message}; begin one with conn.transaction(), or use enqueue()")
    return conn
