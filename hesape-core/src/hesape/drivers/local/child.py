"""The child process of `background` as its parent sees it, and what the two say to each other.

Both speak lines of JSON over one pair of sockets, which is the child's standard input. The parent's first line says
where modules are found; then each is one push, `{"push": 1, "jobs": [...]}`, a job being its stored record. The child
says `{"ready": true}` or `{"failed": why}`, then `{"push": 1}`, with `"refused": why` if it took none of them, and
`{"done": id}` for each job that ended.
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
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from hesape.errors import ConfigError, OutcomeUnknownError, StoreRefusedError, StoreUnavailableError
from hesape.records import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self._numbers = count(1)
        self._answers: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._given: dict[str, None] = {}
        """The ids of the jobs that haven't ended, in the order of their push."""
        self._over = self._closing = False
        self._end, theirs = socket.socketpair()
        self._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(ANSWER_S), 0))
        with theirs:
            # In a group of its own: a terminal's signals reach the parent, whose end is the child's.
            self._popen = subprocess.Popen(argv, stdin=theirs.fileno(), process_group=0)
        self._reader = threading.Thread(target=self._read, name=f"hesape-child-{self._popen.pid}", daemon=True)
        self._reader.start()
        try:
            self._say({"path": [place for place in sys.path if isinstance(place, str)]})
            answer = self._answer(0, START_S)
        except BaseException as error:
            self._popen.kill()
            self._reader.join()
            if isinstance(error, OutcomeUnknownError):  # it was given nothing yet
                raise StoreUnavailableError(str(error)) from None
            raise
        if "failed" in answer:
            self._closing = True
            self._reader.join()
            message = f"{self._what} can't work: {answer['failed']}"
            raise ConfigError(message)

    @property
    def over(self) -> bool:
        """Whether nothing can be given to it any more."""
        return self._over

    def give(self, rows: Sequence[tuple[NewRow, int]]) -> None:
        """Give it jobs, all or none, each with its due time in microseconds; returns when it has taken them.

        `StoreRefusedError` when it took none, `StoreUnavailableError` when they surely didn't reach it,
        `OutcomeUnknownError` when it didn't answer.
        """
        number = next(self._numbers)
        self._answers[number] = Future()
        ids = [row.id for row, _ in rows]
        self._given |= dict.fromkeys(ids)
        try:
            self._say({"push": number, "jobs": [_plain(row, due_us) for row, due_us in rows]})
            refused = self._answer(number, ANSWER_S).get("refused")
        except StoreUnavailableError:
            self._forget(ids)
            raise
        if refused:
            self._forget(ids)
            raise StoreRefusedError(refused)

    def _say(self, said: dict[str, Any]) -> None:
        line = json.dumps(said).encode() + b"\n"
        try:
            with self._sending:
                self._end.sendall(line)
        except BaseException as error:  # the end of the line didn't arrive, so it counts for nothing
            self._say_no_more()
            if not isinstance(error, OSError):
                raise
            message = f"{self._what} takes no jobs any more; the next push starts another: {error}"
            raise StoreUnavailableError(message) from error

    def _say_no_more(self) -> None:
        self._over = True
        with suppress(OSError):  # it is gone
            self._end.shutdown(socket.SHUT_WR)

    def _answer(self, number: int, within_s: float) -> dict[str, Any]:
        try:
            return self._answers[number].result(within_s)
        except TimeoutError:
            raise OutcomeUnknownError(f"{self._what} didn't answer for {within_s:g} s") from None
        finally:
            self._answers.pop(number, None)

    def _forget(self, ids: Sequence[str]) -> None:
        for job_id in ids:
            self._given.pop(job_id, None)

    # The reader's thread.

    def _read(self) -> None:
        with self._end.makefile("rb") as lines, suppress(OSError):  # it may die with something of ours unread
            for line in lines:
                self._hear(json.loads(line))
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
