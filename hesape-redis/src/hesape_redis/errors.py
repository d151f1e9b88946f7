"""What redis-py's errors mean in hesape's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import redis
from redis import exceptions as of_redis

from hesape.config import ConnectionSettings
from hesape.errors import (
    OutcomeUnknownError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape.masking import scrub

BROKEN: Final = (redis.RedisError, of_redis.RedisClusterException, OSError)
"""All that the client library raises."""
_LATER: Final = (
    of_redis.BusyLoadingError,  # it reads its data after a start
    of_redis.ClusterDownError,  # also MASTERDOWN
    of_redis.AuthenticationError,
    of_redis.AuthorizationError,
)
"""Answers that come before anything was executed, and that may be over in a while."""
_LATER_WORDS: Final = ("BUSY ", "LOADING ", "MASTERDOWN ")
"""The same, where the client library has no class for it, or has it only for replies outside scripts."""
_ELSEWHERE: Final = (of_redis.AskError, of_redis.TryAgainError)  # MOVED is an ASK
_HINTS: Final = {
    "OOM": "the server's memory is full",
    "MISCONF": "the server can't write to its disk",
    "READONLY": "this is a replica; name the master, or a sentinel",
    "MOVED": "this is a cluster: use redis+cluster://",
    "NOPERM": "the user needs the keys and channels of the prefix",
    "unexpected symbol near '#'": "hesape needs Redis 7.0 or later",
}


def unavailable(error: Exception, settings: ConnectionSettings) -> StoreUnavailableError:
    """The error of a connection that couldn't be made, or broke before a whole command was sent."""
    return StoreUnavailableError(_text(error, settings))


def translated(error: Exception, settings: ConnectionSettings, *, writes: bool) -> StoreError:
    """The error of a command that was sent; `writes` says whether it may have changed anything."""
    text = _text(error, settings)
    if isinstance(error, _ELSEWHERE):
        return StoreBusyError(text)
    if isinstance(error, _LATER) or text_of(error).startswith(_LATER_WORDS):
        return StoreUnavailableError(text)
    if isinstance(error.__context__, redis.ReadOnlyError):
        # The sentinel's connection says so itself: another server is the master now, the next attempt asks for it.
        return StoreUnavailableError(text)
    if isinstance(error, redis.ResponseError):
        # OOM, READONLY, MISCONF, NOREPLICAS, NOPERM, a script that failed: refused before its first write.
        return StoreRefusedError(text)
    return OutcomeUnknownError(f"{text}; no answer came") if writes else StoreUnavailableError(text)


@contextmanager
def translate_errors(settings: ConnectionSettings, *, writes: bool) -> Iterator[None]:
    """Let no error of redis-py out of a block in which a command was sent."""
    try:
        yield
    except BROKEN as error:
        raise translated(error, settings, writes=writes) from error


def text_of(error: Exception) -> str:
    """The server's words, in one line."""
    return " ".join(str(error).split())


def _text(error: Exception, settings: ConnectionSettings) -> str:
    words = scrub(text_of(error) or type(error).__name__, settings)
    kind = type(error).__name__
    found = [hint for word, hint in _HINTS.items() if word in words or word == _word_of(error)]
    return f"connection {settings.name!r}: {kind}: {'; '.join([words, *found])}"


def _word_of(error: Exception) -> str:
    """The code that redis-py took off the server's words when it chose the class."""
    codes = {
        of_redis.OutOfMemoryError: "OOM",
        of_redis.ReadOnlyError: "READONLY",
        of_redis.NoPermissionError: "NOPERM",
        of_redis.MovedError: "MOVED",
    }
    return codes.get(type(error), "")
