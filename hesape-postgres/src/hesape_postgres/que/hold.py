"""A locked job as its holder sees it: the key that was locked, the session that holds the lock, and how it ended."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable
from typing import Any, Protocol

import attrs
import psycopg
from psycopg.pq import TransactionStatus

from hesape.errors import AlreadySettledError, DetachedError, StoreUnavailableError, TransactionRefusedError
from hesape_postgres.que.errors import translate_errors
from hesape_postgres.que.keys import Key
from hesape_postgres.que.session import Session
from hesape_postgres.que.statements import DESTROY, SET_ERROR

_MOST_ERRORS = 2**31 - 1


class Keeper(Protocol):
    """Who keeps a locked job's connection: `Session` for one job, `Batch` for several."""

    session: Session

    def lend(self) -> psycopg.Connection[Any]:
        """The connection, for the handler's own use from now on."""
        ...

    def finish(self, key: Key) -> bool:
        """Take over the deletion of a job that nobody touched through its connection; false if that can't be."""
        ...

    def end(self, key: Key) -> None:
        """The job is over: its lock goes, now or with the batch's; never raises."""
        ...


class Outcome(enum.Enum):
    """How a job was settled."""

    DELETED = "deleted"
    ERRORED = "given back with an error"


@attrs.define(eq=False)
class Hold:
    """What a `QueJob` does while it is locked.

    A settlement inside a transaction on the job's connection is provisional: the handler may roll it back, wholly or to
    a savepoint, and nobody tells us. So after a provisional one each further call is made again, and the number of
    rows that the key still finds says what became of the first.
    """

    key: Key
    error_count: int
    delay: Callable[[int], float]
    keeper: Keeper | None
    outcome: Outcome | None = None
    firm: bool = False

    @property
    def conn(self) -> psycopg.Connection[Any] | None:
        """The locked connection, or `None` once the job is over."""
        keeper = self.keeper
        return None if keeper is None else keeper.lend()

    def delete(self) -> None:
        """Delete the row by its full key."""
        session = self._attached()
        with session.mutex, translate_errors("deleting a Que job", wrote=True):
            if self._already(Outcome.DELETED):
                return
            found = session.execute(DESTROY, self.key.parameters()).rowcount
            if not found and self.outcome is Outcome.ERRORED:
                raise _settled(self.outcome)
            self._settle(session, Outcome.DELETED)

    def error(self, text: str) -> None:
        """Count an error, store its text, and move the row to now and the delay of the new count."""
        session = self._attached()
        with session.mutex, translate_errors("storing the error of a Que job", wrote=True):
            if self._already(Outcome.ERRORED):
                return
            count = min(self.error_count + 1, _MOST_ERRORS)
            new = (count, float(self.delay(count)), text)
            found = session.execute(SET_ERROR, (*new, *self.key.parameters())).rowcount
            if not found and self.outcome is Outcome.DELETED:
                raise _settled(self.outcome)
            self._settle(session, Outcome.ERRORED)

    def done(self) -> None:
        """End it: idempotent, never raises."""
        keeper = self.keeper
        if keeper is None:
            return
        with keeper.session.mutex:
            if self.keeper is not None:
                self.keeper = None
                keeper.end(self.key)

    def succeed(self) -> None:
        """The handler returned: delete the job, unless it settled it, and commit both with what it left open.

        A handler that returns while its transaction has failed did not succeed: `TransactionRefusedError`.
        """
        session, keeper = self._attached(), self.keeper
        with session.mutex, translate_errors("committing what a Que job did", wrote=True):
            if session.status == TransactionStatus.INERROR:
                raise TransactionRefusedError("the handler returned while its transaction on job.conn had failed")
            if not session.takes_statements:
                raise TransactionRefusedError("the handler left job.conn closed, or with a copy or pipeline open")
            if self.outcome is None and keeper is not None and keeper.finish(self.key):
                self.outcome, self.firm = Outcome.DELETED, True
                return
            if not self.firm and self.outcome is not Outcome.ERRORED:
                self.delete()
            if session.status == TransactionStatus.INTRANS:
                session.conn.commit()

    def fail(self, text: str) -> None:
        """The handler failed: roll back what it left open and store the error, unless the job was settled for good."""
        session = self._attached()
        with session.mutex, translate_errors("rolling back after a Que job"):
            session.settle_down()
            if not session.takes_statements:
                raise StoreUnavailableError("the job's connection can't store its error; the job is due as before")
            with contextlib.suppress(AlreadySettledError):
                self.error(text)

    def _attached(self) -> Session:
        if self.keeper is None:
            message = "this Que job isn't locked: it never came from lock_job, or done() has ended it"
            raise DetachedError(message)
        return self.keeper.session

    def _already(self, wanted: Outcome) -> bool:
        if self.firm and self.outcome is not wanted and self.outcome is not None:
            raise _settled(self.outcome)
        return self.firm

    def _settle(self, session: Session, outcome: Outcome) -> None:
        self.outcome = outcome
        self.firm = session.status == TransactionStatus.IDLE


def _settled(outcome: Outcome) -> AlreadySettledError:
    return AlreadySettledError(f"this Que job was {outcome.value} before, and its key with it")
