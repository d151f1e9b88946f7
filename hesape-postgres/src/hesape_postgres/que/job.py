"""A job of a Que table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Self

import attrs
import psycopg

from hesape.error_text import error_text
from hesape.errors import DetachedError, NameInvalidError, PriorityInvalidError
from hesape.times import to_us
from hesape_postgres.que.hold import Hold, Keeper
from hesape_postgres.que.keys import Instant, Key

_PRIORITIES = range(-(2**15), 2**15)


def _check_text(_job: QueJob, attribute: attrs.Attribute[str], text: object) -> None:
    if not isinstance(text, str):
        raise NameInvalidError(f"the {attribute.name} of a Que job is text, found {text!r}")
    try:
        text.encode()
    except UnicodeEncodeError:
        storable = False
    else:
        storable = "\0" not in text
    if not storable:
        raise NameInvalidError(f"the {attribute.name} {text!a} has a character that PostgreSQL can't store")


def _check_priority(_job: QueJob, _attribute: attrs.Attribute[int | None], priority: object) -> None:
    if priority is None:
        return
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in _PRIORITIES:
        message = f"priority {priority!r}: expected a whole number from -32768 to 32767, or None for 100"
        raise PriorityInvalidError(message)


def _check_run_at(_job: QueJob, _attribute: attrs.Attribute[datetime | None], run_at: datetime | None) -> None:
    if run_at is not None:
        to_us(run_at)


@attrs.define(eq=False)
class QueJob:
    """One row of `que_jobs`, to be enqueued or as it was read.

    `type` is Ruby's `job_class`. `args` are bytes of JSON, kept unchanged, or a value that is written as an array; a
    job that was read has the stored bytes. `priority` (lower is more urgent) and `run_at` (aware) may be `None` for
    100 and now; 0 and "" are values. `id`, `error_count` and `last_error` are ignored when a job is enqueued.

    A job from `QueClient.lock_job` holds an advisory lock and a connection until `done()`, which a `with` block calls.
    A copy of it holds neither.
    """

    type: str = attrs.field(validator=_check_text)
    args: Any = None
    queue: str = attrs.field(default="", validator=_check_text)
    priority: int | None = attrs.field(default=None, validator=_check_priority)
    run_at: datetime | None = attrs.field(default=None, validator=_check_run_at)
    id: int | None = attrs.field(default=None, kw_only=True)
    error_count: int = attrs.field(default=0, kw_only=True)
    last_error: str | None = attrs.field(default=None, kw_only=True)
    _hold: Hold | None = attrs.field(default=None, init=False, repr=False)

    @property
    def conn(self) -> psycopg.Connection[Any] | None:
        """The connection that holds the lock, in autocommit; `None` after `done()` and on a job that isn't locked.

        What the handler writes in a transaction on it, together with `delete()`, happens wholly or not at all.
        """
        return None if self._hold is None else self._hold.conn

    def delete(self) -> None:
        """Delete the job by its full key; twice is a no-op.

        In an open transaction on `conn` it is part of that. Raises `AlreadySettledError` after `error()`, since the key
        has moved, and `DetachedError` without a lock. The connection stays with the job until `done()`.
        """
        self._locked().delete()

    def error(self, message: str) -> None:
        """Count an error, store `message` (16 KiB of it at most), and make the job due again after the client's delay.

        Twice is a no-op. Raises `AlreadySettledError` after `delete()`, `DetachedError` without a lock. The connection
        stays with the job until `done()`.
        """
        self._locked().error(error_text(message))

    def done(self) -> None:
        """Roll back an open transaction, free the lock and return the connection.

        Idempotent, and never raises. Unless the server confirmed the unlock the connection is closed, which frees the
        lock as well, instead of going back to the pool with it.
        """
        if self._hold is not None:
            self._hold.done()

    def conclude(self, cause: BaseException | str | None = None) -> None:
        """Settle the job as `QueWorker` does after a handler; `done()` is still to be called.

        Without a `cause` the job is deleted, and what the handler left uncommitted on `conn` is committed with that.
        With one, that is rolled back and the error stored. A job that its handler settled for good is left alone.
        """
        hold = self._locked()
        if cause is None:
            hold.succeed()
        else:
            hold.fail(error_text(cause))

    def __enter__(self) -> Self:
        """The job itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Call `done()`, whatever happened."""
        self.done()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets: everything but the lock."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(QueJob) if field.init}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make a copy, without a lock."""
        self.__init__(**state)  # type: ignore[misc]

    def _locked(self) -> Hold:
        if self._hold is None:
            raise DetachedError("this Que job isn't locked: only lock_job returns one that is")
        return self._hold


def received_job(row: tuple[Any, ...], last_error: str | None = None) -> QueJob:
    """The job of a row that INSERT or LOCK returned."""
    queue, priority, run_at, job_id, job_class, args, error_count = row
    return QueJob(
        job_class,
        args,
        queue,
        priority,
        Instant.received(run_at).as_datetime(),
        id=job_id,
        error_count=error_count,
        last_error=last_error,
    )


def locked_job(row: tuple[Any, ...], last_error: str | None, keeper: Keeper, delay: Callable[[int], float]) -> QueJob:
    """The job of a row that this session holds the lock of."""
    job = received_job(row, last_error)
    job._hold = Hold(Key.received(*row[:4]), row[6], delay, keeper)  # noqa: SLF001 - this is its constructor
    return job
