"""One connection of a pool in autocommit, from checkout to return."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import TupleRow, tuple_row
from psycopg_pool import ConnectionPool

from hesape_postgres.que.errors import translate_errors
from hesape_postgres.que.keys import Key
from hesape_postgres.que.statements import UNLOCK, UNLOCK_MANY

logger = logging.getLogger(__name__)

_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


class Session:
    """A connection that holds advisory locks, and must not return to its pool with one of them.

    It is in autocommit: the lock and the double check need a snapshot each, and a handler opens its own transaction.
    `mutex` guards the connection where more than one thread may want it.
    """

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        """Check a connection out. Raises `StoreUnavailableError`."""
        self.mutex = threading.RLock()
        self._pool = pool
        self._clean = True
        with translate_errors("checking a connection out of the pool"):
            self.conn: psycopg.Connection[Any] = pool.getconn()
            self._autocommit = self.conn.autocommit
            try:
                self.conn.autocommit = True
            except BaseException:
                self.discard()
                self.close()
                raise

    @property
    def status(self) -> TransactionStatus:
        """Where the connection stands: idle, in a transaction, in a failed one, or unknown when it is closed."""
        return self.conn.info.transaction_status

    @property
    def takes_statements(self) -> bool:
        """False when lost, and when a copy or a pipeline was left open on it: a statement might wait for ever."""
        open_or_idle = self.status in (TransactionStatus.IDLE, *_OPEN)
        return self._clean and open_or_idle and self.conn.pgconn.pipeline_status == PipelineStatus.OFF

    def execute(self, statement: str, parameters: Any, *, prepare: bool = True) -> psycopg.Cursor[TupleRow]:
        """Run one statement, whatever cursors and rows the pool's connections are set to. Raises psycopg's errors."""
        return psycopg.Cursor(self.conn, row_factory=tuple_row).execute(statement, parameters, prepare=prepare)

    def unlock(self, job_id: int) -> None:
        """Give one lock back; without the server's word that it was held, the connection is lost with it."""
        # As text, so that the types, and with them the prepared statement, are those of a NULL.
        self._confirm(1, UNLOCK, (str(int(job_id)),), prepare=True)

    def unlock_many(self, job_ids: Sequence[int]) -> None:
        """Give these locks back, each once."""
        if len(job_ids) == 1:
            self.unlock(job_ids[0])
        elif job_ids:
            self._confirm(len(job_ids), UNLOCK_MANY, (list(job_ids),), prepare=False)

    def _confirm(self, expected: int, statement: str, parameters: Any, *, prepare: bool) -> None:
        try:
            row = self.execute(statement, parameters, prepare=prepare).fetchone()
            if row and row[0] == expected:  # one lock is confirmed by true, several by their number
                return
            logger.warning("the server confirmed %r of %d unlocks; closing the connection", row, expected)
        except psycopg.Error as error:
            logger.warning("an unlock failed, closing the connection: %s", error)
        except BaseException:
            self.discard()
            raise
        self.discard()

    def settle_down(self) -> None:
        """Undo what a handler left open; a connection that can't be brought to rest is lost."""
        conn = self.conn
        try:
            if self.status in _OPEN:
                conn.rollback()
            if self.status != TransactionStatus.IDLE or not self.takes_statements:
                self.discard()
            elif not conn.autocommit:
                conn.autocommit = True
        except psycopg.Error as error:
            logger.warning("a job left its connection unusable, closing it: %s", error)
            self.discard()

    def release(self, job_ids: Sequence[int]) -> None:
        """Undo what is open, give these locks back, each once, and return the connection."""
        try:
            self.settle_down()
            if self._clean:
                self.unlock_many(job_ids)
        except BaseException:
            self.discard()
            raise
        finally:
            self.close()

    def discard(self) -> None:
        """Close the connection at its end instead of pooling it: only that surely frees what it holds."""
        self._clean = False

    def close(self) -> None:
        """Give the connection back; never raises. It is closed unless it is idle and clean."""
        conn, pool = self.conn, self._pool
        try:
            if self._clean and self.status == TransactionStatus.IDLE:
                conn.autocommit = self._autocommit
            else:
                conn.close()
        except psycopg.Error:
            conn.close()
        try:
            pool.putconn(conn)
        except Exception:  # a pool that can't take it back has no claim on it
            logger.exception("the pool refused its connection")
            conn.close()


class OneJob:
    """The keeper of a job that has a session to itself."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def lend(self) -> psycopg.Connection[Any]:
        """The connection."""
        return self.session.conn

    def finish(self, key: Key) -> bool:
        """No."""
        return False

    def end(self, key: Key) -> None:
        """Free the lock and return the connection; never raises."""
        try:
            self.session.release([key.job_id])
        except Exception:  # what ends a job must not stop its worker
            logger.exception("ending Que job %s", key.job_id)
