"""Handing jobs out: delete what is done, promote what is due, claim; one step (L6, L7, L9, O1)."""

from __future__ import annotations

from typing import Any, NamedTuple

from hesape.driver import PROMOTED_AT_ONCE
from hesape.drivers.sqlite import settling
from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.records import in_place, to_rows
from hesape.drivers.sqlite.session import Session
from hesape.records import Claim, Claimed, Key


class _Look(NamedTuple):
    """What there is to do for a claim, found without writing."""

    now_us: int
    queues: list[str]
    """The claim's, without the paused ones, each once."""
    ready: list[str]
    """Those of them that have something ready."""
    promotable: list[str]
    """Those of them that have something that fell due or whose lease ran out."""
    next_due_us: int | None
    paused: frozenset[str]


def reserve(session: Session, claim: Claim) -> Claimed:
    """Answer a claim. Nothing is written when there is nothing to do, so that idle workers disturb nobody."""
    if not claim.done:
        look = _look(session, claim)
        again = _delivered(session, claim)
        if again or not (look.ready or look.promotable):
            return _claimed(look, again, [])
        if not look.promotable and (claim.n == 1 or len(look.ready) == 1):
            return _claimed(look, _claim_alone(session, claim, look.ready[0]), [])
    session.begin()
    lost = settling.delete_done(session, claim.done, repeat=claim.repeat)
    look = _look(session, claim)
    found = _delivered(session, claim)
    if not found:
        if look.promotable:
            _promote(session, look)
            look = _look(session, claim)
        found = _claim(session, claim, look)
    return _claimed(look, found, lost)


def _claimed(look: _Look, found: list[Any], lost: list[Key]) -> Claimed:
    return Claimed(to_rows(found), lost, look.paused, look.now_us, look.next_due_us)


def _look(session: Session, claim: Claim) -> _Look:
    paused = frozenset(queue for (queue,) in session.rows(sql.PAUSED))
    queues = [queue for queue in dict.fromkeys(claim.queues) if queue not in paused]
    now_us = session.now()
    ready, promotable, dues = [], [], []
    for queue in queues:
        is_ready, due_us, end_us = session.rows(sql.LOOK, (queue, queue, queue))[0]
        if is_ready:
            ready.append(queue)
        if (due_us is not None and due_us <= now_us) or (end_us is not None and end_us <= now_us):
            promotable.append(queue)
        if due_us is not None:
            dues.append(due_us)
    return _Look(now_us, queues, ready, promotable, min(dues, default=None), paused)


def _delivered(session: Session, claim: Claim) -> list[Any]:
    """What an earlier send of this very claim reserved (L4)."""
    found = session.rows(sql.CLAIMED, (claim.worker, claim.token))
    if not found:
        return found
    order = {queue: place for place, queue in enumerate(dict.fromkeys(claim.queues))}
    return sorted(in_place(found), key=lambda values: order.get(values[5], len(order)))


def _claim_alone(session: Session, claim: Claim, queue: str) -> list[Any]:
    """Claim from one queue by a statement that is a transaction by itself: the quickest way."""
    return in_place(session.alone(sql.CLAIM, lambda now_us: _values(claim, queue, claim.n, now_us)))


def _claim(session: Session, claim: Claim, look: _Look) -> list[Any]:
    found: list[Any] = []
    now_us = session.now()
    for queue in look.ready:
        if len(found) >= claim.n:
            break
        found += in_place(session.rows(sql.CLAIM, _values(claim, queue, claim.n - len(found), now_us)))
    return found


def _values(claim: Claim, queue: str, n: int, now_us: int) -> tuple[Any, ...]:
    return claim.token, claim.worker, now_us, now_us + claim.lease_us, queue, queue, n


def _promote(session: Session, look: _Look) -> None:
    """Make ready what fell due and whose lease ran out; again while there was a full share, for O1."""
    for queue in look.promotable:
        values = (queue, look.now_us, PROMOTED_AT_ONCE)
        for statement in (sql.PROMOTE_DUE, sql.PROMOTE_LAPSED):
            while session.run(statement, values) >= PROMOTED_AT_ONCE:
                pass
