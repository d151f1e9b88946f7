"""Waiting for a job to become due: a subscription for as long as the wait, so that nothing piles up without a waiter.

Subscribe first, look then: whatever becomes due after the look is heard (W1). What is lost with a broken connection
costs the caller one poll.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from hesape.config import ConnectionSettings
from hesape_redis import keys
from hesape_redis.errors import BROKEN, translate_errors
from hesape_redis.link import Link
from hesape_redis.scripts import ALL

_LONGEST_NAP_S: Final = 1.0
"""A due time that was brought forward without a word is noticed after this long."""


class Waiting:
    """The subscribed connections of one driver, one for each thread that waits."""

    def __init__(self, link: Link, settings: ConnectionSettings, base: str) -> None:
        """Wait with connections of `link`."""
        self._link = link
        self._settings = settings
        self._base = base
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        """Block until a job of these queues may be due, at most `timeout_s`; whether it was woken."""
        deadline = monotonic() + timeout_s
        channels = [keys.channel(self._base, queue) for queue in dict.fromkeys(queues)]
        connection = self._take()
        in_step = False
        try:
            with translate_errors(self._settings, writes=False):
                _subscribe(connection, channels)
                found = self._until_due(connection, queues, deadline)
                # Not waited for: the answer, and what was said before it, is skipped by the next wait.
                connection.send_command("UNSUBSCRIBE")
            in_step = True
            return found
        finally:
            if in_step:
                self._idle.append(connection)
            else:
                self._link.give_back(connection, in_step=False)

    def _until_due(self, connection: Any, queues: Sequence[str], deadline: float) -> bool:
        while True:
            due_in = int(self._link.run(ALL["look"], *queues)) / 1_000_000
            if due_in == 0:
                return True
            left = deadline - monotonic()
            nap = min(left, _LONGEST_NAP_S, due_in) if due_in > 0 else min(left, _LONGEST_NAP_S)
            if left <= 0:
                return False
            if connection.can_read(nap) and _message(connection) == b"now":
                return True

    def _take(self) -> Any:
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._link.take()
        try:
            connection.can_read(0)
        except BROKEN:
            self._link.give_back(connection, in_step=False)  # closed by the server while nobody waited
            return self._link.take()
        return connection

    def close(self) -> None:
        """Close the connections that nobody waits on."""
        while self._pid == os.getpid() and self._idle:
            self._link.give_back(self._idle.pop(), in_step=False)


def _subscribe(connection: Any, channels: list[str]) -> None:
    """Listen to the channels; when this returns the server knows."""
    connection.send_command("SUBSCRIBE", *channels)
    confirmed = 0
    while confirmed < len(channels):
        kind, *_ = connection.read_response(disable_decoding=True, push_request=True)
        confirmed += kind == b"subscribe"


def _message(connection: Any) -> bytes | None:
    """What was said: `now` when something is due, `later` when something will be."""
    kind, *_, text = connection.read_response(disable_decoding=True, push_request=True)
    return text if kind == b"message" else None
