"""The child process of `background` as its parent sees it, and what the two say to each other.

Both speak lines of JSON over one pair of sockets, which is the child's standard input. The parent numbers its lines:
the first, 0, says where modules are found; then each is one push, `{"push": 1, "jobs": [...]}`, a job being its stored
record. The child says `{"ready": true}` or `{"failed": why}`, then `{"push": 1}`, with `"refused": why` if it took none
of them, and `{"done": id}` for each job that ended.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
from base64 import b64decode, b64encode
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from hesape.errors import ConfigError, OutcomeUnknownError, StoreRefusedError, StoreUnavailableError
from hesape.records import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hesape.records import NewRow

logger = logging.getLogger(__name__)

START_S: Final = 60.0
"""How long a child may take to import its application."""
ANSWER_S: Final = 30.0
"""How long it may take to take in a push."""
LINGER_S: Final = 5.0
"""How much longer than its grace a child may take to end."""
_SHOWN: Final = 10


class Child:
    """One child process. Threads share it."""

    def __init__(self, connection: str, argv: Sequence[str]) -> None:
        """Start it, and wait until it can work; `ConfigError` says why it can't."""
        self._what = f"connection {connection!r}: its child process"
        self._sending = threading.Lock()
        self._numbers = count()
        self._answers: dict[int, Future[dict[str, Any]]] = {}
        self._given: dict[str, None] = {}
        """The ids of the jobs that haven't ended, in the order of their push."""
        self._over = self._closing = False
        try:
            self._start(argv)
        except (OSError, RuntimeError) as error:  # no process, no thread, no memory
            raise StoreUnavailableError(f"{self._what} can't be started: {error}") from error
        try:
            answer = self._ask({"path": [place for place in sys.path if isinstance(place, str)]}, START_S)
        except BaseException as error:
            self._popen.kill()
            self._reader.join()
            if isinstance(error, OutcomeUnknownError):  # it was given nothing yet
                raise StoreUnavailableError(str(error)) from None
            raise
        if "failed" in answer:
            self.close(0)
            message = f"{self._what} can't work: {answer['failed']}"
            raise ConfigError(message)

    def _start(self, argv: Sequence[str]) -> None:
        with ExitStack() as undo:
            self._end, theirs = socket.socketpair()
            undo.callback(self._end.close)
            with theirs:
                self._end.settimeout(None)  # whatever the application's default is
                self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_S), 0))
                # In a group of its own: a terminal's signals reach the parent, whose end is the child's.
                self._popen = subprocess.Popen(argv, stdin=theirs.fileno(), process_group=0)
            undo.callback(self._popen.wait)
            undo.callback(self._popen.kill)
            self._reader = threading.Thread(target=self._read, name=f"hesape-child-{self._popen.pid}", daemon=True)
            self._reader.start()
            undo.pop_all()

    @property
    def over(self) -> bool:
        """Whether nothing can be given to it any more."""
        return self._over

    def give(self, rows: Sequence[tuple[NewRow, int]]) -> None:
        """Give it jobs, all or none, each with its due time in microseconds; returns when it has taken them.

        `StoreRefusedError` when it took none, `StoreUnavailableError` when they surely didn't reach it,
        `OutcomeUnknownError` when it didn't answer.
        """
        ids = [row.id for row, _ in rows]
        self._given |= dict.fromkeys(ids)
        try:
            refused = self._ask({"jobs": [_plain(row, due_us) for row, due_us in rows]}, ANSWER_S).get("refused")
        except StoreUnavailableError:
            self._forget(ids)
            raise
        if refused:
            self._forget(ids)
            raise StoreRefusedError(refused)

    def _ask(self, said: dict[str, Any], within_s: float) -> dict[str, Any]:
        number = next(self._numbers)
        answer: Future[dict[str, Any]] = Future()
        self._answers[number] = answer
        try:
            self._say({"push": number, **said})
            return answer.result(within_s)
        except TimeoutError:
            raise OutcomeUnknownError(f"{self._what} didn't answer for {within_s:g} s") from None
        finally:
            del self._answers[number]

    def _say(self, said: dict[str, Any]) -> None:
        line = json.dumps(said).encode() + b"\n"
        try:
            with self._sending:
                self._end.sendall(line)
        except BaseException as error:  # nothing may follow what is perhaps half a line
            self._say_no_more()
            if not isinstance(error, OSError):
                raise
            # The end of the line didn't arrive, so it counts for nothing.
            raise StoreUnavailableError(f"{self._what} takes no jobs any more: {error}") from error

    def _say_no_more(self) -> None:
        self._over = True
        with suppress(OSError):  # it is gone
            self._end.shutdown(socket.SHUT_WR)

    def _forget(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            self._given.pop(job_id, None)

    # The reader's thread.

    def _read(self) -> None:
        for said in heard(self._end):
            self._hear(said)
        with self._sending:
            self._over = True
            self._end.close()
        self._ended(self._popen.wait())

    def _hear(self, said: dict[str, Any]) -> None:
        if "done" in said:
            self._forget([said["done"]])
        elif (waiting := self._answers.get(said.get("push", 0))) is not None:
            waiting.set_result(said)

    def _ended(self, status: int) -> None:
        how = f"ended with exit code {status}" if status >= 0 else f"was killed by signal {-status}"
        if status or not self._closing:
            lost = list(self._given)
            named = ", ".join(lost[:_SHOWN]) + (" and so on" if len(lost) > _SHOWN else "")
            what = f"; {len(lost)} jobs that it hadn't finished are lost: {named}" if lost else ""
            logger.error("%s %d %s%s", self._what, self._popen.pid, how, what)
        for waiting in list(self._answers.values()):
            if not waiting.done():
                waiting.set_exception(OutcomeUnknownError(f"{self._what} {how} before it answered"))

    # Its end.

    def close(self, grace_s: float) -> None:
        """Have it finish what it was given within `grace_s`, and wait for its end."""
        self._closing = True
        self._say_no_more()
        self._reader.join(grace_s + LINGER_S)
        if self._reader.is_alive():
            self._popen.kill()
            self._reader.join()

    def disown(self) -> None:
        """Have nothing to do with it any more, in a forked process: it is the parent's, and ends when that does."""
        self._over = True
        self._popen.returncode = 0
        with suppress(OSError):  # it is closed
            os.close(self._end.detach())


def heard(end: socket.socket) -> Iterator[dict[str, Any]]:
    """What the other end says, until it ends or this one is shut; a line whose end is missing counts for nothing."""
    with end.makefile("rb") as lines, suppress(ConnectionError):  # it may die with something of ours unread
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _plain(row: NewRow, due_us: int) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": row.tenant,
        "name": row.name,
        "queue": row.queue,
        "priority": row.priority,
        "due_us": due_us,
        "envelope": b64encode(row.envelope).decode(),
    }


def row_of(plain: dict[str, Any], now_us: int) -> Row:
    """The stored record of a job, in its first and only delivery."""
    return Row(
        id=plain["id"],
        envelope=b64decode(plain["envelope"]),
        tenant=plain["tenant"],
        name=plain["name"],
        queue=plain["queue"],
        priority=plain["priority"],
        due_us=plain["due_us"],
        attempts=1,
        lapses=0,
        exceptions=0,
        last_error=None,
        reserved_until_us=None,
        pushed_us=now_us,
        retried_us=None,
        failed_us=None,
    )
