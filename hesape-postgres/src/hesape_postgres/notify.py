"""Waking waiters: notifications are sent after the commit, by the client, and never decide anything.

A trigger on the rows would take the server's one lock for notifications in every push. Here a queue is announced at
once when it was quiet, and then once in a few milliseconds, however many jobs come. What is lost costs one poll.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Final, NamedTuple

import psycopg

from hesape.errors import HesapeError
from hesape_postgres import statements
from hesape_postgres.connections import Own, OwnConnection
from hesape_postgres.link import Link
from hesape_postgres.records import array
from hesape_postgres.sessions import Session

logger = logging.getLogger(__name__)

QUIET_S: Final = 0.005
_REMEMBERED: Final = 10_000
_LATER: Final = " later"
_PAYLOAD: Final = re.compile(r"(\S+)( later)?")


class Woken(NamedTuple):
    """A job that came: into which queue, and whether it is due only later."""

    queue: str
    later: bool = False

    @property
    def payload(self) -> str:
        """What is sent: the queue, and `later`. No queue's name has a space (P5)."""
        return self.queue + _LATER * self.later


def payloads_of(woken: Iterable[Woken]) -> list[str]:
    """What is sent for jobs that came, each thing once."""
    return sorted({came.payload for came in woken})


def channel_of(store_id: str) -> str:
    """The channel of one store: a server has one set of names a database, cut at 63 bytes."""
    return "hesape_" + store_id.replace("-", "")


class Announcer:
    """Sends notifications after commits."""

    def __init__(self, link: Link, waiter: Waiter) -> None:
        """Start nothing yet."""
        self._link = link
        self._waiter = waiter
        self._changed = threading.Condition()
        self._sent: dict[str, float] = {}
        self._pending: set[str] = set()
        self._thread: threading.Thread | None = None
        self._over = False

    def after(self, own: Own, woken: Iterable[Woken]) -> None:
        """Announce what was committed on `own`, or leave it to the next few milliseconds' announcement."""
        now = monotonic()
        fresh = []
        woken = set(woken)
        if self._link.options.pooler:
            self._waiter.wake(woken)
        with self._changed:
            if len(self._sent) > _REMEMBERED:
                self._sent.clear()
            for payload in payloads_of(woken):
                if payload in self._pending:
                    continue
                if now - self._sent.get(payload, 0.0) >= QUIET_S:
                    self._sent[payload] = now
                    fresh.append(payload)
                else:
                    self._pending.add(payload)
                    self._start()
        if fresh:
            self._send(own, fresh)

    def committed(self, woken: Iterable[Woken]) -> None:
        """As `after`, when the connection was given back: no error of another one makes the commit look undone."""
        with contextlib.suppress(HesapeError), self._link.own() as own:
            self.after(own, woken)

    def close(self) -> None:
        """Send what is still to be sent, and end."""
        with self._changed:
            self._over = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(2.0)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="hesape announcer", daemon=True)
            self._thread.start()
        elif len(self._pending) == 1:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._pending:
                    if self._over:
                        return
                    self._changed.wait()
                if not self._over:
                    self._changed.wait(QUIET_S)
                payloads, self._pending = sorted(self._pending), set()
                self._sent.update(dict.fromkeys(payloads, monotonic()))
            with contextlib.suppress(HesapeError), self._link.own() as own:
                self._send(own, payloads)

    def _send(self, own: Own, payloads: Sequence[str]) -> None:
        try:
            own.rows(
                self._link.sql[statements.NOTIFY],
                {"channel": channel_of(self._link.store_id), "payloads": array(f'"{payload}"' for payload in payloads)},
            )
        except psycopg.Error as error:
            logger.debug("a notification is lost: %s", type(error).__name__)


class Waiter:
    """Blocks until something may be due; listens on one connection a process, opened by the first wait."""

    def __init__(self, link: Link) -> None:
        """Open nothing yet."""
        self._link = link
        self._changed = threading.Condition()
        self._now: dict[str, int] = {}
        self._later: dict[str, int] = {}
        self._epoch = 0
        self._session = Session("hesape listener", lambda: link.dial("hesape listener"), self._greet, self._told)

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        """As `Driver.wait`. Looks once when it begins, so that nothing that came before is slept over."""
        deadline = monotonic() + timeout_s
        self.listen()
        while True:
            before = self._mark(queues)
            due_s = self._due_in(queues)
            if due_s is not None and due_s <= 0:
                return True
            end = deadline if due_s is None else min(deadline, monotonic() + due_s)
            if self._sleep(queues, before, end):
                return True
            if monotonic() >= deadline:
                return False

    def listen(self) -> None:
        """Be told from now on; not behind a pooler."""
        if not self._link.options.pooler:
            with contextlib.suppress(HesapeError, psycopg.Error):  # the session's thread goes on trying
                self._link.find()
                self._session.ensure()

    def wake(self, woken: Iterable[Woken]) -> None:
        """Wake waiters of this very process, which behind a pooler is all that can be woken."""
        for payload in payloads_of(woken):
            self._told(payload)

    def close(self) -> None:
        """End the session."""
        self._session.close()

    def _greet(self, conn: OwnConnection) -> None:
        conn.execute(f'listen "{channel_of(self._link.store_id)}"'.encode(), prepare=False)
        with self._changed:  # what came while nobody listened is looked for
            self._epoch += 1
            self._changed.notify_all()

    def _told(self, payload: str) -> None:
        heard = _PAYLOAD.fullmatch(payload)
        if heard is None:
            return  # anybody may send on any channel
        queue, later = heard.groups()
        counts = self._later if later else self._now
        with self._changed:
            if len(counts) >= _REMEMBERED:
                counts.clear()
                self._epoch += 1  # whoever waits looks again
            counts[queue] = counts.get(queue, 0) + 1
            self._changed.notify_all()

    def _mark(self, queues: Sequence[str]) -> tuple[list[int], list[int]]:
        with self._changed:
            return self._numbers(queues)

    def _numbers(self, queues: Sequence[str]) -> tuple[list[int], list[int]]:
        now = [self._now.get(queue, 0) for queue in queues]
        return now, [self._epoch, *(self._later.get(queue, 0) for queue in queues)]

    def _sleep(self, queues: Sequence[str], before: tuple[list[int], list[int]], end: float) -> bool:
        """Sleep until a job came (true), something changed that asks for another look, or the end."""
        with self._changed:
            while True:
                now, later = self._numbers(queues)
                if now != before[0]:
                    return True
                left = end - monotonic()
                if later != before[1] or left <= 0:
                    return False
                self._changed.wait(left)

    def _due_in(self, queues: Sequence[str]) -> float | None:
        try:
            (left_us,) = self._link.look(statements.NEXT, {"queues": array(queues)})[0]
        except HesapeError as error:
            logger.debug("can't look for due jobs: %s", error)
            return None
        return None if left_us is None else left_us / 1_000_000
