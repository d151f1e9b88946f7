"""The way to the server: connections that threads borrow one at a time, and one exchange on them for each operation.

The client library's own commands aren't used. They may send a command again after an unknown outcome, decode what comes
back, and cost more than the server's work. What is used of it are its connections, which know TLS, sentinels and
clusters.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import redis
from redis.exceptions import MovedError, NoScriptError

from hesape.config import ConnectionSettings
from hesape.errors import StoreRefusedError
from hesape_redis.errors import BROKEN, translate_errors, unavailable
from hesape_redis.scripts import Script
from hesape_redis.sources import Source


class Link:
    """The connections of one driver in this process. A forked child begins with none (E2)."""

    def __init__(self, source: Source, settings: ConnectionSettings, base: str) -> None:
        """Use the connections of `source`; `base` is what scripts are given as their key."""
        self._source = source
        self._settings = settings
        self._base = base
        self._idle: deque[Any] = deque()
        self._pid = os.getpid()

    def run(self, script: Script, *arguments: str | bytes | int) -> Any:
        """Run a script, in one round trip once the server knows it; its answer, text as bytes."""
        words = ("EVALSHA", script.sha, 1, self._base, *arguments)
        return self._exchange(words, script.writes, script)

    def ask(self, *words: str) -> Any:
        """Send a command that only reads."""
        return self._exchange(words, writes=False)

    def _exchange(self, words: tuple[str | bytes | int, ...], writes: bool, script: Script | None = None) -> Any:  # noqa: FBT001
        connection = self.take()
        in_step = False
        try:
            try:
                connection.send_command(*words)
            except BROKEN as error:
                # What couldn't be handed over to its end can't be executed.
                raise unavailable(error, self._settings) from error
            with translate_errors(self._settings, writes=writes):
                try:
                    answer = connection.read_response(disable_decoding=True)
                except NoScriptError:
                    # Forgotten in a restart or a flush, so nothing ran: the text instead of its digest.
                    assert script is not None  # noqa: S101 - only EVALSHA is answered so
                    connection.send_command("EVAL", script.text, *words[2:])
                    answer = connection.read_response(disable_decoding=True)
                in_step = True
                return answer
        except Exception as error:
            cause = error.__cause__
            in_step = isinstance(cause, redis.ResponseError)
            if isinstance(cause, MovedError) and not self._follow():
                raise StoreRefusedError(str(error)) from cause
            raise
        finally:
            self.give_back(connection, in_step=in_step)

    def take(self) -> Any:
        """Borrow a connection that is connected and has nothing left to say, for this thread alone."""
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        try:
            connection = self._idle.pop()
        except IndexError:
            try:
                return self._source.connect()
            except BROKEN as error:
                raise unavailable(error, self._settings) from error
        try:
            if not connection.can_read(0):
                return connection
        except BROKEN:
            pass  # closed by the server while it was idle: nothing was sent on it
        connection.disconnect()
        try:
            connection.connect()
        except BaseException as error:
            self._source.give_back(connection)
            if isinstance(error, BROKEN):
                raise unavailable(error, self._settings) from error
            raise
        return connection

    def give_back(self, connection: Any, *, in_step: bool) -> None:
        """Return a borrowed connection; one that may be out of step is closed: half an answer may be on its way."""
        if in_step and self._pid == connection.pid and self._source.owns(connection):
            self._idle.append(connection)
            return
        connection.disconnect()
        self._source.give_back(connection)

    def _follow(self) -> bool:
        """Learn where the slot is now; connections to the old place are of no use. False where that is no cluster."""
        try:
            follows = self._source.refresh()
        except BROKEN:
            return True  # the next attempt says what is wrong
        self._drop_idle()
        return follows

    def _drop_idle(self) -> None:
        while self._idle:
            connection = self._idle.pop()
            connection.disconnect()
            self._source.give_back(connection)

    def close(self) -> None:
        """Close every connection that isn't in use; the next call opens anew."""
        if self._pid == os.getpid():
            self._drop_idle()
            self._source.close()
        self._idle = deque()
