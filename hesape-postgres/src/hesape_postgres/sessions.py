"""A connection outside the pool, and the thread that listens on it: it notices at once when the session is lost."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

import psycopg
from psycopg.pq import ConnStatus

from hesape.errors import HesapeError
from hesape_postgres.connections import OwnConnection

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0
_END_WITHIN_S: Final = 2.0


class Session:
    """One server session that is opened anew whenever it is lost, never silently: `greet` sets up each one."""

    def __init__(
        self,
        name: str,
        dial: Callable[[], OwnConnection],
        greet: Callable[[OwnConnection], None],
        told: Callable[[str], None] | None = None,
    ) -> None:
        """Open nothing yet. `told` gets the payload of each notification, in the thread that listens."""
        self.name = name
        self.lock = threading.RLock()
        """Held while a statement runs on it."""
        self._dial = dial
        self._greet = greet
        self._told = told
        self._conn: OwnConnection | None = None
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def ensure(self) -> OwnConnection:
        """The session, opened if there is none; raises what `dial` and `greet` do. Hold `lock` to use it."""
        with self.lock:
            if self._conn is None or self._conn.closed:
                self._conn = None
                conn = self._dial()
                try:
                    self._greet(conn)
                except BaseException:
                    conn.close()
                    raise
                self._conn = conn
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
                self._thread.start()
            return self._conn

    def close(self) -> None:
        """End the session and its thread."""
        self._over.set()
        with self.lock:
            conn, thread = self._conn, self._thread
            if conn is not None and not conn.closed:
                # The thread sleeps on this socket: the end of it is what wakes it
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(conn.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)
        if thread is not None:
            thread.join(_END_WITHIN_S)
        if conn is not None:
            conn.close()

    def _run(self) -> None:
        pause, silent = _FIRST_PAUSE_S, False
        while not self._over.is_set():
            try:
                conn = self.ensure()
            except (HesapeError, psycopg.Error) as error:
                if not silent:
                    logger.warning("%s: the session is lost until the server answers: %s", self.name, error)
                silent = True
                self._over.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_S)
                continue
            if silent:
                logger.warning("%s: the session is back", self.name)
            pause, silent = _FIRST_PAUSE_S, False
            self._listen(conn)
            self._over.wait(_FIRST_PAUSE_S)  # a session that is lost as soon as it is open must not spin

    def _listen(self, conn: OwnConnection) -> None:
        """Hand on notifications until the session is lost or over."""
        with contextlib.suppress(psycopg.Error, OSError):
            ear = select.poll()
            ear.register(conn.fileno(), select.POLLIN)
            while not self._over.is_set():
                ear.poll()
                for payload in self._heard(conn):
                    if self._told is not None:
                        self._told(payload)
        if not self._over.is_set():
            with self.lock:
                conn.close()

    def _heard(self, conn: OwnConnection) -> list[str]:
        payloads = []
        with self.lock:
            conn.pgconn.consume_input()
            while (notification := conn.pgconn.notifies()) is not None:
                payloads.append(notification.extra.decode(errors="replace"))
            if conn.pgconn.status != ConnStatus.OK:
                message = "the session is lost"
                raise psycopg.OperationalError(message)
        return payloads
