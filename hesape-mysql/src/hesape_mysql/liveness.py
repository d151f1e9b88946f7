"""Who is alive: each worker's named lock lives on one connection that runs nothing else and never reconnects silently.

The server frees the lock the moment the worker's process is gone, however it went. Rescuers only read: an attempt to
take it would make the owner's own fail.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import WeakSet

from hesape.records import WorkerRow
from hesape_mysql.errors import CLIENT_ERRORS, translate_errors
from hesape_mysql.pool import Answer, OwnSession, Pool, connect
from hesape_mysql.records import blob, lock_name, raw_ids, uuids, worker_digest
from hesape_mysql.settings import Settings
from hesape_mysql.statements import (
    DELETE_EXPIRED,
    ENDS_SOON,
    EXPIRED,
    FORGET_WORKER,
    HELD,
    HOLD,
    LAPSE,
    PAUSED,
    REGISTER,
    RENEW,
    STILL_HOLDS,
    STILL_SILENT,
    SUSPECTS,
    UPTIME,
    WORKERS,
    Statements,
)

logger = logging.getLogger(__name__)

_APART_S: Final = 0.7
"""How far apart two sightings of an absent lock are: long enough for a worker that lost its session to take it anew."""
_FRESH_SERVER_S: Final = 5
"""A server that just started has lost every lock; by then its workers have taken theirs again."""


class LockKeeper:
    """Holds the locks of this process's workers, on a connection of its own."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet."""
        self._settings = settings
        self._session: OwnSession | None = None
        self._turn = threading.Lock()
        _keepers.add(self)

    def hold(self, worker: str) -> tuple[str, int]:
        """Hold the worker's lock, taken anew if the connection was lost; its name, and the session that holds it."""
        name = lock_name(self._settings.database, self._settings.prefix, f"worker:{worker}")
        with self._turn:
            try:
                return name, self._held(name)
            except CLIENT_ERRORS:
                self._lose()
                logger.warning("connection %s: the liveness session was lost; taking it anew", self._settings.where)
            with translate_errors():
                return name, self._held(name)

    def _held(self, name: str) -> int:
        if self._session is None:
            self._session = connect(self._settings)
            self._session.ask("set session wait_timeout = 2147483")
        # A lock that an older session of ours still holds, until the server notices its end, shows life as well.
        sql = f"select if(is_used_lock('{name}') <=> connection_id(), 1, get_lock('{name}', 0)), connection_id()"
        return int(self._session.ask(sql)[0].rows[0][1])

    def release(self, worker: str) -> None:
        """Give the lock of a worker that is gone for certain back, if it is held here."""
        name = lock_name(self._settings.database, self._settings.prefix, f"worker:{worker}")
        with self._turn:
            if self._session is not None:
                try:
                    self._session.ask(f"do release_lock('{name}')")
                except CLIENT_ERRORS:
                    self._lose()

    def close(self) -> None:
        """Give up every lock."""
        with self._turn:
            if self._session is not None:
                with contextlib.suppress(*CLIENT_ERRORS):
                    self._session.connection.close()
                self._session = None

    def _lose(self) -> None:
        if self._session is not None:
            self._session.discard()
            self._session = None

    def forget(self) -> None:
        """Close our copy of the socket in a forked child, or the lock would outlive the parent."""
        self._turn = threading.Lock()
        self._lose()


_keepers: WeakSet[LockKeeper] = WeakSet()


def _after_fork() -> None:
    for keeper in list(_keepers):
        keeper.forget()


os.register_at_fork(after_in_child=_after_fork)


class _Sighting(NamedTuple):
    worker: str
    beat_us: int
    at: float


class Registry:
    """The registered workers: their beats, and what becomes of the dead."""

    def __init__(self, pool: Pool, statements: Statements) -> None:
        """Register through `pool`."""
        self._pool = pool
        self._statements = statements
        self._keeper = LockKeeper(pool.settings)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
        """Renew a worker and what it holds; the paused queues (L9)."""
        lock, session_id = self._keeper.hold(worker)
        values: dict[str, object] = {
            "worker": blob(worker),
            "holder": worker_digest(worker),
            "lock": f"'{lock}'",
            "session": session_id,
            "ttl_us": ttl_us,
            "half_us": lease_us // 2,
            "lease_us": lease_us,
            "but": uuids(but) or "x''",
        }
        parts = (self._statements[text] % values for text in (REGISTER, ENDS_SOON, PAUSED))
        with self._pool.session() as session:
            _, ends_soon, paused = session.ask("; ".join(parts), commits=True)
            if ends_soon.rows:
                self._renew(session, values, ends_soon)
        return frozenset(row[0] for row in paused.rows)

    def _renew(self, session: OwnSession, values: dict[str, object], ends_soon: Answer) -> None:
        session.ask("begin")
        if held := self._hold(session, values, ends_soon):
            session.ask(self._statements[RENEW] % {**values, "ids": raw_ids(held)})
        session.ask("commit", commits=True)

    def _hold(self, session: OwnSession, values: dict[str, object], found: Answer) -> list[bytes]:
        """Lock what was found without locks, as far as it is still held and nobody else has it locked."""
        if not found.rows:
            return []
        ids = raw_ids(row[0] for row in found.rows)
        return [row[0] for row in session.ask(self._statements[HOLD] % {**values, "ids": ids})[0].rows]

    def retire(self, worker: str) -> int:
        """Forget a worker and free what it holds; how many jobs."""
        with self._pool.session() as session:
            session.ask("begin")
            freed = self._free(session, worker)
            session.ask("commit", commits=True)
        self._keeper.release(worker)
        return freed

    def _free(self, session: OwnSession, worker: str) -> int:
        if not worker:
            return 0  # deliveries without a worker are ended by their leases alone (L4)
        values: dict[str, object] = {"worker": blob(worker), "holder": worker_digest(worker)}
        held = self._hold(session, values, session.ask(self._statements[HELD] % values)[0])
        parts = [self._statements[LAPSE] % {"ids": raw_ids(held)}] if held else []
        if not session.ask("; ".join([*parts, self._statements[STILL_HOLDS] % values]))[-1].rows[0][0]:
            session.ask(self._statements[FORGET_WORKER] % values)
        return len(held)

    def rescue(self) -> int:
        """Free what dead workers hold, and forget what expired; how many jobs came back."""
        dead, suspects = self._look()
        if suspects:
            self._pause_until(suspects[0].at + _APART_S)
            again, still = self._look()
            seen = {(suspect.worker, suspect.beat_us) for suspect in suspects}
            dead = [*again, *(sighting for sighting in still if (sighting.worker, sighting.beat_us) in seen)]
        freed = sum(self._bury(sighting) for sighting in dead)
        self._forget_expired()
        return freed

    @staticmethod
    def _pause_until(moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            time.sleep(left)

    def _look(self) -> tuple[list[_Sighting], list[_Sighting]]:
        """Whose time is over, and whose lock is absent although the server is up long enough."""
        with self._pool.session() as session:
            at = time.monotonic()
            rows = session.ask(self._statements[SUSPECTS])[0].rows
            silent = [_Sighting(bytes(row[0]).decode(), row[1], at) for row in rows if row[2]]
            absent = [_Sighting(bytes(row[0]).decode(), row[1], at) for row in rows if row[3] and not row[2]]
            if absent and int(session.ask(UPTIME)[0].rows[0][1]) < _FRESH_SERVER_S:
                absent = []
        return silent, absent

    def _bury(self, sighting: _Sighting) -> int:
        values = {"worker": blob(sighting.worker), "beat_us": sighting.beat_us}
        with self._pool.session() as session:
            if not session.ask(f"begin; {self._statements[STILL_SILENT] % values}")[1].rows:
                session.ask("rollback")
                return 0
            freed = self._free(session, sighting.worker)
            session.ask("commit", commits=True)
        logger.info("worker %s is gone: %d of its jobs are ready again", sighting.worker, freed)
        return freed

    def _forget_expired(self) -> None:
        with self._pool.session() as session:
            names = [bytes(row[0]) for row in session.ask(self._statements[EXPIRED])[0].rows]
            if names:
                keys = ",".join(blob(name) for name in sorted(names))
                session.ask(self._statements[DELETE_EXPIRED] % {"keys": keys}, commits=True)

    def workers(self) -> list[WorkerRow]:
        """The registered workers by name."""
        with self._pool.session() as session:
            rows = session.ask(self._statements[WORKERS])[0].rows
        return [WorkerRow(bytes(name).decode(), beat_us, held, since_us) for name, beat_us, held, since_us in rows]

    def close(self) -> None:
        """Give up the locks."""
        self._keeper.close()
