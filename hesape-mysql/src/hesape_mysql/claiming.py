"""The claim: two round trips when nothing fell due, two more when something has to be promoted first (L6, L7, O1).

To promote is no part of the claim's transaction: it writes down what time has done already, and whoever holds what it
promoted while it looks for jobs is in the way of all who look (see `statements`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hesape.driver import PROMOTED_AT_ONCE
from hesape.records import Claim, Claimed, Key, Row
from hesape_mysql.pool import Answer, OwnSession, Session
from hesape_mysql.records import blob, current, deliveries, job_id, mark, raw_ids, text, unpack, uuids, worker_digest
from hesape_mysql.statements import (
    AT_MOMENT,
    CLAIM,
    CLAIMED_BEFORE,
    DELETE,
    FELL_DUE,
    INFO,
    LAPSE,
    LAPSED,
    LOCKED,
    MOMENT,
    NEXT_DUE,
    PRESENT,
    PROMOTE,
    RESERVE,
    Statements,
)


class _Info(NamedTuple):
    """What the store says about itself in the middle of a claim."""

    now_us: int
    again: bool
    """Whether this token holds jobs already: its reply was lost."""
    due: list[int]
    """When the next scheduled job of each queue falls due, 0 for none."""
    lapsed: list[int]
    """Whether a lease of each queue ran out."""
    paused: frozenset[str]


_Seen = tuple[_Info, list[bytes]]
"""What there is, and the packed rows that are locked for this claim."""


def reserve(session: OwnSession, statements: Statements, claim: Claim) -> Claimed:
    """Delete what is done, promote what is due, claim."""
    return _Claiming(session, statements, claim).run()


class _Claiming:
    """One claim on its way."""

    def __init__(self, session: OwnSession, statements: Statements, claim: Claim) -> None:
        self.session = session
        self.statements = statements
        self.claim = claim
        self.queues = list(dict.fromkeys(claim.queues))
        self.values = {
            "holder": worker_digest(claim.worker),
            "mark": mark(claim.token),
            "token": blob(claim.token),
            "dues": ", ".join(statements[NEXT_DUE] % {"queue": text(queue)} for queue in self.queues),
        }

    def run(self) -> Claimed:
        """Do it."""
        lost, (info, ready) = self._begin()
        while not info.again and (due := self._fell_due(info)):
            promotion, found = self._find(due)
            lost, (info, ready) = self._begin(promotion)
            if found < PROMOTED_AT_ONCE:
                break
        if info.again:
            return self._answer(info, lost, self._claimed_before())
        rows = self._reserve(info, ready)
        self._end(rows, info)
        return self._answer(info, lost, rows)

    def _begin(self, promotion: Sequence[str] = ()) -> tuple[list[Key], _Seen]:
        """Delete what is done, and look. Only when fewer rows went than were done it matters which."""
        if not self.claim.done:
            begin = [*promotion, "begin"]
            return [], self._read(self._ask([*begin, *self._look()], promotion)[len(begin) :])
        condition = current_among(self.claim.done)
        begin, deletion = [*promotion, self.statements[MOMENT], "begin"], self.statements[DELETE] % condition
        answers = self._ask([*begin, deletion, *self._look()], promotion)[len(begin) :]
        if answers[0].affected == len(set(self.claim.done)):
            return [], self._read(answers[1:])
        begin = ["rollback", self.statements[MOMENT], "begin"]
        locking = self.statements[LOCKED] % condition
        locked, _, *answers = self._ask([*begin, locking, deletion, *self._look()])[len(begin) :]
        return self._lost(locked), self._read(answers)

    def _ask(self, parts: Sequence[str], promotion: Sequence[str] = ()) -> list[Answer]:
        return self.session.ask("; ".join(parts), commits=bool(promotion))

    def _look(self) -> list[str]:
        """The statements that show what there is and lock what may be claimed."""
        info = self.statements[INFO] % self.values
        if len(self.queues) == 1:
            return [info, self.statements[CLAIM] % {"queue": text(self.queues[0]), "n": self.claim.n}]
        # A limit that shrinks by what the queues before have given takes a prepared statement.
        parts = [info, f"set @hesape_n = {self.claim.n}"]
        for queue in self.queues:
            written = (self.statements[CLAIM] % {"queue": text(queue), "n": "?"}).replace("'", "''")
            parts += [
                f"prepare hesape_claim from '{written}'",
                "execute hesape_claim using @hesape_n",
                "set @hesape_n = @hesape_n - found_rows()",
            ]
        return parts

    def _read(self, answers: Sequence[Answer]) -> _Seen:
        fields = _bytes(answers[0].rows[0][0]).decode().split(" ")
        count = len(self.queues)
        dues = [int(field) for field in fields[2 : 2 + 2 * count]]
        paused = frozenset(field for field in fields[2 + 2 * count :] if field)
        info = _Info(int(fields[0]), fields[1] == "1", dues[::2], dues[1::2], paused)
        found = answers[1:] if count == 1 else answers[3::3]
        return info, [row[0] for answer in found for row in answer.rows]

    def _lost(self, answer: Answer) -> list[Key]:
        deleted = current_ones(answer)
        lost = [key for key in self.claim.done if key not in deleted]
        return still_there(self.session, self.statements, lost) if lost and self.claim.repeat else lost

    def _fell_due(self, info: _Info) -> list[str]:
        return [
            queue
            for queue, due, lapsed in zip(self.queues, info.due, info.lapsed, strict=True)
            if lapsed or 0 < due <= info.now_us
        ]

    def _find(self, queues: Sequence[str]) -> tuple[list[str], int]:
        """What makes ready what fell due in these queues, to be sent next; the most that one statement found.

        A transaction of its own, and all of them find in the order of the index (see `statements`).
        """
        finds = [
            (self.statements[find] % {"queue": text(queue), "limit": PROMOTED_AT_ONCE}, update)
            for queue in sorted(queues)
            for find, update in ((FELL_DUE, PROMOTE), (LAPSED, LAPSE))
        ]
        answers = self._ask(["rollback", "begin", *(find for find, _ in finds)])[2:]
        updates = [
            self.statements[update] % {"ids": raw_ids(row[0] for row in answer.rows)}
            for answer, (_, update) in zip(answers, finds, strict=True)
            if answer.rows
        ]
        return [*updates, "commit"], max(len(answer.rows) for answer in answers)

    def _claimed_before(self) -> list[Row]:
        answer = self.session.ask(f"{self.statements[CLAIMED_BEFORE] % self.values}; commit", commits=True)[0]
        rows = [unpack(row[0]) for row in answer.rows]
        place = {queue: index for index, queue in enumerate(self.queues)}
        return sorted(rows, key=lambda row: place.get(row.queue, 0))

    def _reserve(self, info: _Info, packed: Sequence[bytes]) -> list[Row]:
        until_us = info.now_us + self.claim.lease_us
        return [unpack(row, until_us) for row in packed]

    def _end(self, rows: Sequence[Row], info: _Info) -> None:
        if not rows:
            self.session.ask("commit", commits=bool(self.claim.done))
            return
        values = {
            **self.values,
            "until_us": info.now_us + self.claim.lease_us,
            "now_us": info.now_us,
            "ids": uuids(sorted(row.id for row in rows)),
        }
        self.session.ask(f"{self.statements[RESERVE] % values}; commit", commits=True)

    def _answer(self, info: _Info, lost: list[Key], rows: list[Row]) -> Claimed:
        dues = [due for queue, due in zip(self.queues, info.due, strict=True) if due and queue not in info.paused]
        return Claimed(rows, lost, info.paused, info.now_us, min(dues, default=None))


def current_among(keys: Sequence[Key]) -> dict[str, str]:
    """The values for `LOCKED` and `DELETE`, which go by one moment."""
    return {"current": current(keys, AT_MOMENT), "ids": uuids(sorted({key.id for key in keys}))}


def current_ones(answer: Answer) -> set[Key]:
    """The deliveries that `LOCKED` found current."""
    return deliveries(both for both, is_current in answer.rows if is_current)


def still_there(session: Session, statements: Statements, keys: Sequence[Key]) -> list[Key]:
    """Those of the keys whose row exists: after an unknown outcome an absent one counts as deleted (S5)."""
    rows = session.ask(statements[PRESENT] % {"ids": uuids(sorted({key.id for key in keys}))})[0].rows
    there = {job_id(bytes(row[0])) for row in rows}
    return [key for key in keys if key.id in there]


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
