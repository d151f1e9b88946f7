"""Telling whether a worker lives: a lock that its session holds, and a rescuer that only reads.

Each registration has a random key of its own. So an old session of the same worker, which the server hasn't noticed to
be gone, can neither be in the way nor take the new lock with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from time import monotonic, sleep
from typing import Any, Final

from hesape.errors import StoreUnavailableError
from hesape_postgres import errors, statements
from hesape_postgres.connections import OwnConnection
from hesape_postgres.link import Link
from hesape_postgres.sessions import Session

SESSION_NAME: Final = "hesape liveness"
_NOBODY: Final[Mapping[str, Any]] = {"lock_key": None, "pid": None, "server": None}


class Liveness:
    """The locks of this process's workers, on one connection that runs no job's statement."""

    def __init__(self, link: Link) -> None:
        """Open nothing yet."""
        self._link = link
        self._held: dict[str, Mapping[str, Any]] = {}
        self._session = Session(SESSION_NAME, lambda: link.dial(SESSION_NAME), self._greet)

    def registration(self, worker: str) -> Mapping[str, Any]:
        """Whose lock to look for, taken if it isn't held; behind a pooler nobody's, where beats alone count."""
        if self._link.options.pooler:
            return _NOBODY
        with self._session.lock:
            conn = self._session.ensure()
            if worker not in self._held:
                with errors.translate_errors(conn, self._link.settings, StoreUnavailableError):
                    self._held[worker] = self._take(conn)
            return self._held[worker]

    def drop(self, worker: str) -> None:
        """Let go of a worker's lock."""
        with self._session.lock:
            held = self._held.pop(worker, None)
            if held is not None:
                conn = self._session.ensure()
                with errors.translate_errors(conn, self._link.settings, StoreUnavailableError):
                    conn.execute("select pg_advisory_unlock(%(lock_key)s::bigint)", held, prepare=False)

    def close(self) -> None:
        """End the session, and with it every lock."""
        self._session.close()
        self._held.clear()

    def _greet(self, conn: OwnConnection) -> None:
        """Take every lock anew in a new session, and say so before a rescuer looks twice."""
        for worker in list(self._held):
            registration = self._take(conn)
            conn.execute(
                self._link.sql[statements.REGISTER_AGAIN],
                {**registration, "worker": self._link.text.put(worker)},
                prepare=False,
            )
            self._held[worker] = registration

    def _take(self, conn: OwnConnection) -> Mapping[str, Any]:
        key = secrets.randbits(62)
        conn.execute(statements.LOCK_SESSION.encode(), {"lock_key": key}, prepare=False)
        row = conn.execute(statements.HERE.encode(), prepare=False).fetchone()
        assert row is not None  # noqa: S101 - a select without a from answers
        return {"lock_key": key, "pid": row[0], "server": row[1]}


def sight(link: Link) -> None:
    """Note which workers' locks are absent, and look a second time at those that weren't noted long enough ago."""
    link.count(statements.SIGHT)
    absent = [missing_us for (missing_us,) in link.look(statements.MISSING_SINCE) if missing_us < statements.ABSENT_US]
    if absent:
        end = monotonic() + (statements.ABSENT_US - min(absent)) / 1_000_000
        while (left := end - monotonic()) > 0:
            sleep(left)
        link.count(statements.SIGHT)
