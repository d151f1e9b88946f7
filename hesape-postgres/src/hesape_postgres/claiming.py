"""Claiming: deletion, promotion and claim in one round trip and one transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from time import monotonic
from typing import Any, Final, NamedTuple

from hesape.records import Claim, Claimed, Key, Row
from hesape_postgres import records, statements
from hesape_postgres.connections import Own
from hesape_postgres.link import Link
from hesape_postgres.marks import Marks

_QUEUE: Final = Row._fields.index("queue")
_SEQ: Final = len(Row._fields)
"""The sequence number comes after the columns of a row."""
_in_order = itemgetter(Row._fields.index("priority"), Row._fields.index("due_us"), _SEQ)


class Told(NamedTuple):
    """What `PROMOTE` answers."""

    now_us: int
    again: bool
    """This very claim was executed before."""
    full: bool
    """A full share was promoted, and nothing claimed."""
    promoted: int
    next_due_us: int | None
    paused: list[str]
    gate: str


def reserve(link: Link, marks: Marks, claim: Claim) -> Claimed:
    """As `Driver.reserve`."""
    queues = list(dict.fromkeys(claim.queues))
    done = sorted(set(claim.done))  # in the order of ids, as everybody who locks several rows
    with link.own() as own:
        lost, told, rows = _step(link, own, marks, claim, queues, done)
        while told.full:
            _, told, rows = _step(link, own, marks, claim, queues, [])
        if told.again:
            rows = own.rows(
                link.sql[statements.CLAIMED], {"worker": link.text.put(claim.worker), "token": claim.token.hex()}
            )
            _sort(rows, queues)
    row_of = link.text.row
    return Claimed(
        [row_of(row[:_SEQ]) for row in rows],
        [key for key in claim.done if key in lost],
        frozenset(told.paused),
        told.now_us,
        told.next_due_us,
    )


def _step(
    link: Link, own: Own, marks: Marks, claim: Claim, queues: Sequence[str], done: Sequence[Key]
) -> tuple[set[Key], Told, list[tuple[Any, ...]]]:
    started = monotonic()
    priorities, dues = marks.starts(queues, started)
    params: Mapping[str, Any] = {
        "queues": records.array(queues),
        "priorities": priorities,
        "dues": dues,
        "n": claim.n,
        "lease": claim.lease_us,
        "token": claim.token.hex(),
        "worker": link.text.put(claim.worker),
    }
    keys = records.keys(done)
    with together(own):
        deleted = own.send(0, link.sql[statements.DELETE], keys) if done else None
        present = own.send(1, link.sql[statements.PRESENT], keys) if done and claim.repeat else None
        told = own.send(2, link.sql[statements.PROMOTE], params)
        claimed = own.send(3, link.sql[statements.CLAIM], params)
    gone = {place for (place,) in deleted.fetchall()} if deleted else set()
    lost = {key for place, key in enumerate(done, 1) if place not in gone}
    if present:
        left = {job_id for (job_id,) in present.fetchall()}
        lost = {key for key in lost if key.id in left}
    answer = Told._make(told.fetchall()[0])
    rows = claimed.fetchall()
    _sort(rows, queues)
    marks.learn(queues, rows, full=len(rows) == claim.n, promoted=answer.promoted > 0, started=started)
    return lost, answer, rows


def _sort(rows: list[tuple[Any, ...]], queues: Sequence[str]) -> None:
    """Into the order of the claim: what an update returns has none."""
    rows.sort(key=_in_order)
    if len(queues) > 1:
        place = {queue: index for index, queue in enumerate(queues)}
        rows.sort(key=lambda row: place.get(row[_QUEUE], 0))


@contextlib.contextmanager
def together(own: Own) -> Iterator[None]:
    """One round trip and one transaction for the block's statements; the first error undoes all of them."""
    # Behind a pooler the session's default isolation is somebody else's business, so the transaction says its own
    begun = contextlib.nullcontext() if own.prepare else own.conn.transaction()
    with own.conn.pipeline(), begun:
        yield
