"""Several locked jobs of one session, for a worker whose handlers are quick.

One job costs the client four round trips, of which only the deletion writes. A batch locks up to fifty jobs in one,
checks them in one, deletes what its handlers finished in one, and unlocks in one. What is guaranteed stays what Que
guarantees: every job's lock is held by the session that works it until the job's deletion is committed, and every job
was checked by a snapshot younger than its lock.

Two rules keep a batch from being felt. A job that finished is deleted, and a job that hasn't begun goes back for
others to take, as soon as some handler has run for `PATIENCE_S`. And a handler that asks for the connection gets it for
itself: both happen first, and its own job is then deleted by itself, with what the handler wrote.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import psycopg
from psycopg_pool import ConnectionPool

from hesape_postgres.que.client import ATTEMPTS
from hesape_postgres.que.errors import AgainError, translate_errors
from hesape_postgres.que.job import QueJob, locked_job
from hesape_postgres.que.keys import Key, key_arrays
from hesape_postgres.que.session import Session
from hesape_postgres.que.statements import CHECK_MANY, DESTROY, DESTROY_MANY, LOCK

logger = logging.getLogger(__name__)

PATIENCE_S: Final = 0.005
"""How long a finished job may await its deletion, and a locked one its turn, behind one handler."""


class Batch:
    """The jobs that one session has locked, and the keeper of each.

    Used by the worker's thread and by the one that watches it; the session's mutex keeps them apart.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.slow = False
        """Whether holding several jobs was no use: a handler took its time, or took the connection."""
        self._waiting: deque[QueJob] = deque()
        self._finished: list[Key] = []
        self._held: set[int] = set()
        self._lent = False
        self._over = False
        self._started_s: float | None = None
        self._oldest_s = 0.0

    def lock(self, queue: str, most: int, delay: Callable[[int], float]) -> bool:
        """Lock and double-check up to `most` jobs; false when nothing is due. Raises `AgainError`, psycopg's errors."""
        for _ in range(ATTEMPTS):
            rows = self.session.execute(LOCK, {"queue": queue, "most": most}, prepare=False).fetchall()
            if not rows:
                return False
            self._held.update(row[3] for row in rows)
            keys = [Key.received(*row[:4]) for row in rows]
            checked = self.session.execute(CHECK_MANY, (*key_arrays(keys), queue), prepare=False).fetchall()
            still: dict[int, str | None] = dict(checked)
            self._waiting.extend(locked_job(row, still[row[3]], self, delay) for row in rows if row[3] in still)
            if self._waiting:
                return True
            self._unlock(list(self._held))
        raise AgainError

    def take(self) -> QueJob | None:
        """The next job to run, or `None` at the end of the batch."""
        with self.session.mutex:
            now_s = time.monotonic()
            if self._finished and now_s - self._oldest_s >= PATIENCE_S:
                self._settle()
            if not self.session.takes_statements:
                self._waiting.clear()  # its locks are gone with the session, and others may have these jobs
            if not self._waiting:
                return None
            self._started_s = now_s
            return self._waiting.popleft()

    def lend(self) -> psycopg.Connection[Any]:
        """The connection for the handler alone: everything that concerns other jobs is done first."""
        with self.session.mutex:
            if not self._lent:
                self._lent = self.slow = True
                self._settle()
                self._hand_back()
            return self.session.conn

    def finish(self, key: Key) -> bool:
        """Delete this job with others, within `PATIENCE_S`; not one whose handler has the connection."""
        if self._lent:
            return False
        if not self._finished:
            self._oldest_s = time.monotonic()
        self._finished.append(key)
        return True

    def end(self, key: Key) -> None:
        """The handler is through."""
        if self._started_s is not None and time.monotonic() - self._started_s >= PATIENCE_S:
            self.slow = True
        self._started_s = None
        if self._lent:
            self.session.settle_down()

    def look(self) -> None:
        """Let nothing wait for a handler that has run for `PATIENCE_S`; called from the watching thread."""
        with self.session.mutex:
            running = not self._over and not self._lent and self._started_s is not None
            if running and time.monotonic() - (self._started_s or 0.0) >= PATIENCE_S:
                self.slow = True
                self._settle()
                self._hand_back()

    def close(self) -> None:
        """Delete what is finished, give every lock back, and return the connection."""
        with self.session.mutex:
            if not self._over:
                self._over = True
                self._waiting.clear()
                self._settle()
                self.session.release(list(self._held))

    def _settle(self) -> None:
        keys, self._finished = self._finished, []
        if not keys:
            return
        try:
            parameters = (*key_arrays(keys), keys[0].queue)
            self.session.execute(DESTROY_MANY, parameters, prepare=False)
        except psycopg.Error as error:
            if len(keys) > 1 and not self.session.conn.closed:
                self._settle_singly(keys)
            else:
                logger.warning("%d finished Que jobs could not be deleted and will run again: %s", len(keys), error)

    def _settle_singly(self, keys: list[Key]) -> None:
        """One job's trigger, or a deadlock that only several rows can have, must not cost the others."""
        for key in keys:
            try:
                self.session.execute(DESTROY, key.parameters())
            except psycopg.Error as error:
                logger.warning("finished Que job %d could not be deleted and will run again: %s", key.job_id, error)

    def _hand_back(self) -> None:
        ids = [job.id for job in self._waiting if job.id is not None]
        self._waiting.clear()
        self._unlock(ids)

    def _unlock(self, ids: list[int]) -> None:
        self.session.unlock_many(ids)
        self._held.difference_update(ids)


def lock_batch(pool: ConnectionPool[Any], queue: str, most: int, delay: Callable[[int], float]) -> Batch | None:
    """Lock up to `most` jobs of `queue`, or return `None` when none is due. Errors as those of `lock_job`."""
    session = Session(pool)
    batch = Batch(session)
    locked = False
    try:
        with translate_errors("locking Que jobs"):
            locked = batch.lock(queue, most, delay)
    except AgainError:
        raise
    except BaseException:
        session.discard()
        raise
    finally:
        if not locked:
            session.close()
    return batch if locked else None
