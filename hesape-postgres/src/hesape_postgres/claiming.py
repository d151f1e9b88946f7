"""Claiming: deletion, promotion and claim in one statement, and a second one only when something was promoted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from operator import itemgetter
from time import monotonic
from typing import Any, Final, NamedTuple, Self

import psycopg

from hesape.errors import OutcomeUnknownError
from hesape.records import Claim, Claimed, Key, Row
from hesape_postgres import claim_statements, errors, records, statements
from hesape_postgres.connections import Own
from hesape_postgres.link import Link
from hesape_postgres.marks import FOUND_S, Marks

_TENANT: Final = Row._fields.index("tenant")
_NAME: Final = Row._fields.index("name")
_QUEUE: Final = Row._fields.index("queue")
_DUE: Final = Row._fields.index("due_us")
_ATTEMPTS: Final = Row._fields.index("attempts")
_ERROR: Final = Row._fields.index("last_error")
_RESERVED: Final = Row._fields.index("reserved_until_us")
_SEQ: Final = len(Row._fields)
"""The sequence number comes after the columns of a row."""
_in_order = itemgetter(Row._fields.index("priority"), _DUE, _SEQ)


class Told(NamedTuple):
    """What the last row of `STEP` says, in the columns of a row."""

    deleted: frozenset[int]
    """The places among `done` of what was deleted."""
    paused: frozenset[str]
    now_us: int
    share: int
    """How many scheduled or how many expired jobs were promoted, whichever is more."""
    promoted: int
    go_on: bool
    """False: this very claim was executed before."""
    took_us: int
    """How long it looked for jobs and claimed them, by the server's clock."""
    next_due_us: int | None
    marks: str | None
    """What a marked claim found."""

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Self:
        """Read it."""
        paused, places = row[_TENANT], row[_NAME]
        return cls(
            frozenset(map(int, places.split(","))) if places else frozenset(),
            frozenset(paused.split(",")) if paused else frozenset(),
            row[_DUE],
            row[_ATTEMPTS],
            row[_ATTEMPTS + 1],
            bool(row[_ATTEMPTS + 2]),
            row[_RESERVED],
            row[_RESERVED + 1],
            row[_ERROR],
        )


def reserve(link: Link, marks: Marks, claim: Claim) -> Claimed:
    """As `Driver.reserve`."""
    queues = list(dict.fromkeys(claim.queues))
    done = sorted(set(claim.done))  # in the order of ids, as everybody who locks several rows
    with link.own() as own:
        rows, told = _step(link, own, marks, claim, queues, done)
        lost = {key for place, key in enumerate(done, 1) if place not in told.deleted}
        with _after_deleting(told):
            while told.share >= statements.PROMOTED:
                rows, told = _step(link, own, marks, claim, queues, ())
            if not told.go_on:
                named = {"worker": _worker(link, claim), "token": claim.token.hex()}
                rows = own.rows(link.sql[claim_statements.CLAIMED], named)
            elif told.promoted:
                starts = marks.starts(queues, monotonic())
                statement = claim_statements.CLAIM if starts is None else claim_statements.CLAIM_MARKED
                with together(own):
                    answer = own.send(link.sql[statement], _params(link, claim, queues) | (starts or {}))
                rows = answer.fetchall()
            if lost and claim.repeat:
                left = {job_id for (job_id,) in own.rows(link.sql[statements.PRESENT], records.keys(sorted(lost)))}
                lost = {key for key in lost if key.id in left}
    _sort(rows, queues)
    row_of = link.text.row
    return Claimed(
        [row_of(row[:_SEQ]) for row in rows],
        [key for key in claim.done if key in lost],
        told.paused,
        told.now_us,
        told.next_due_us,
    )


@contextlib.contextmanager
def _after_deleting(told: Told) -> Iterator[None]:
    """What the first statement deleted stays deleted: a refusal of a later one doesn't mean that nothing was done."""
    try:
        yield
    except psycopg.Error as error:
        if not told.deleted:
            raise
        message = f"finished jobs were deleted, and the claim that came with it failed: {type(error).__name__}"
        raise OutcomeUnknownError(message) from errors.cause(error)


def _step(
    link: Link, own: Own, marks: Marks, claim: Claim, queues: Sequence[str], done: Sequence[Key]
) -> tuple[list[tuple[Any, ...]], Told]:
    started = monotonic()
    starts = marks.starts(queues, started)
    statement = claim_statements.STEP if starts is None else claim_statements.STEP_MARKED
    params = _params(link, claim, queues) | records.keys(done) | (starts or {})
    with together(own):
        answer = own.send(link.sql[statement], params)
    *rows, last = answer.fetchall()
    told = Told.of(last)
    passing_s = told.took_us / 1e6 - FOUND_S * (len(rows) + told.promoted)
    if told.marks is None:
        marks.clocked(queues, passing_s, monotonic())
    else:
        marks.learn(told.marks, passing_s, started, monotonic())
    return rows, told


def _params(link: Link, claim: Claim, queues: Sequence[str]) -> dict[str, Any]:
    return {
        "queues": records.array(queues),
        "n": claim.n,
        "lease": claim.lease_us,
        "token": claim.token.hex(),
        "worker": _worker(link, claim),
    }


def _worker(link: Link, claim: Claim) -> str:
    return link.text.put(claim.worker)


def _sort(rows: list[tuple[Any, ...]], queues: Sequence[str]) -> None:
    """Into the order of the claim: what an update returns has none."""
    rows.sort(key=_in_order)
    if len(queues) > 1:
        place = {queue: index for index, queue in enumerate(queues)}
        rows.sort(key=lambda row: place.get(row[_QUEUE], 0))


@contextlib.contextmanager
def together(own: Own) -> Iterator[None]:
    """One round trip and one transaction for the block's statement, READ COMMITTED.

    On a connection that is set up for us a statement is just that. Behind a pooler the session's default isolation is
    somebody else's business, so there the transaction says its own.
    """
    if own.prepare:
        yield
    else:
        with own.conn.pipeline(), own.conn.transaction():
            yield
