"""One claim over several stores: filled from the first, then from the next.

A store that can't be reached doesn't hold up the others. What a claim asked of it is owed to it: deletions are made
once it is back, and are reported as lost, since their jobs may run again; a claim whose answer was lost is given back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from hesape.errors import OutcomeUnknownError, SchemaError, StoreError, StoreUnavailableError
from hesape.records import Claim, Claimed, Key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.drivers.failover.member import Member
    from hesape.drivers.failover.routing import Routes

_SAME_CLOCK_US: Final = 200_000
"""Clocks that differ by less, which the time between two calls alone may cost, count as the same."""


class _Asked(NamedTuple):
    """A member without an answer, and what it was asked."""

    member: Member
    claim: Claim
    sent: bool
    """Whether the claim may have been executed."""


class Claims:
    """Claims from the members, and remembers who holds what."""

    def __init__(self, members: Sequence[Member], routes: Routes[Key]) -> None:
        """Claim from `members`, and note in `routes` what came from where."""
        self._members = members
        self._routes = routes
        self._unanswered: dict[bytes, list[Claim | None]] = {}
        """By token: what each member was asked without an answer. Core repeats such a claim."""

    def claim(self, claim: Claim) -> Claimed:
        """Make a claim; at least one member must answer."""
        parts = self._routes.split(claim.done)
        lost = self._delete_unknown(parts.pop(None, []), claim)
        earlier = self._unanswered.pop(claim.token, None) or [None] * len(self._members)
        answers: list[tuple[Member, Claimed]] = []
        silent: list[_Asked] = []
        left: int = claim.n
        failure: StoreError = StoreUnavailableError()
        for member, before in self._order(earlier):
            part = tuple(parts.get(member, ()))
            mine = claim._replace(n=max(min(left, before.n if before else left), 0), done=part)
            if before and not mine.n:  # what it may hold of this claim is too much now
                silent.append(_Asked(member, before._replace(done=part), sent=True))
                continue
            if not mine.n and not part:
                continue
            if claim.token in member.owed_tokens or not self._is_asked(member):
                silent.append(_Asked(member, mine, before is not None))
                continue
            try:
                found = member.ask(partial(_send, member, mine))
            except SchemaError:
                raise
            except StoreError as error:
                failure = error
                silent.append(_Asked(member, mine, before is not None or isinstance(error, OutcomeUnknownError)))
            else:
                left -= len(found.rows)
                answers.append((member, found))
        if not answers:
            raise self._nobody(claim, silent, failure)
        return self._merged(claim, answers, [*lost, *self._owed(silent)])

    def _order(self, earlier: list[Claim | None]) -> list[tuple[Member, Claim | None]]:
        """The members in order, those first that may hold this claim's jobs already."""
        pairs = list(zip(self._members, earlier, strict=True))
        return [pair for pair in pairs if pair[1]] + [pair for pair in pairs if not pair[1]]

    def _is_asked(self, member: Member) -> bool:
        return member.reachable or not any(other.reachable for other in self._members)

    def _nobody(self, claim: Claim, silent: list[_Asked], failure: StoreError) -> StoreError:
        """What to raise when nobody answered. Core sends the claim again, under the same token."""
        sent = {asked.member: asked.claim for asked in silent if asked.sent}
        if not sent:
            return failure
        if len(self._unanswered) > len(self._members) * 100:  # an application's own pops, given up
            self._unanswered.clear()
        self._unanswered[claim.token] = [sent.get(member) for member in self._members]
        if isinstance(failure, OutcomeUnknownError):
            return failure
        unknown = OutcomeUnknownError(f"a claim was sent and has no answer: {failure}")
        unknown.__cause__ = failure
        return unknown

    def _owed(self, silent: list[_Asked]) -> list[Key]:
        """Put on record what the silent members owe or are owed; the deletions, which count as lost."""
        lost: list[Key] = []
        for member, claim, sent in silent:
            if sent:
                member.owe_claim(claim.token, partial(_give_back, member, claim))
            elif claim.done:
                member.owe(partial(_delete, member, claim.done))
            self._routes.drop(claim.done)
            lost += claim.done
        return lost

    def _merged(self, claim: Claim, answers: list[tuple[Member, Claimed]], lost: list[Key]) -> Claimed:
        now_us = answers[0][1].now_us
        due: list[int] = []
        members: dict[str, str] = {}
        self._routes.drop(claim.done)
        for member, found in answers:
            self._routes.add([Key(row.id, claim.token) for row in found.rows], member)
            members |= {row.id: (found.members or {}).get(row.id, member.name) for row in found.rows}
            if found.next_due_us is not None:  # by the clock of the first that answered
                ahead_us = found.now_us - now_us
                due.append(found.next_due_us - (ahead_us if abs(ahead_us) > _SAME_CLOCK_US else 0))
        return Claimed(
            [row for _, found in answers for row in found.rows],
            [*lost, *(key for _, found in answers for key in found.lost)],
            frozenset().union(*(found.paused for _, found in answers)),
            now_us,
            min(due, default=None),
            members,
        )

    def _delete_unknown(self, keys: list[Key], claim: Claim) -> list[Key]:
        """Delete what no route is known of wherever it is; those that were lost."""
        return delete_anywhere(self._members, keys, repeat=claim.repeat) if keys else []


def delete_anywhere(members: Sequence[Member], keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete deliveries of which it isn't known who holds them; those that were lost."""
    found = [set(member.ask(lambda again: _delete_now(member, keys, repeat or again))) for member in members]  # noqa: B023
    lost = set().union(*found) if repeat else set.intersection(*found)
    return [key for key in keys if key in lost]


def _send(member: Member, claim: Claim, again: bool) -> Claimed:  # noqa: FBT001 - the shape of Member.ask
    repeat = claim.repeat or again
    if claim.n > 0:
        return member.driver.reserve(claim._replace(repeat=repeat))
    return Claimed([], _delete_now(member, claim.done, repeat), frozenset(), 0, None)


def _delete_now(member: Member, keys: Sequence[Key], repeat: bool) -> list[Key]:  # noqa: FBT001
    return member.driver._delete(keys, repeat=repeat, tx=None)  # noqa: SLF001 - core's own


def _delete(member: Member, keys: Sequence[Key]) -> None:
    _delete_now(member, keys, repeat=True)


def _give_back(member: Member, claim: Claim) -> None:
    """Learn what a claim took, by its token, and hand all of it back, attempt and place untouched (L4, L8)."""
    found = member.driver.reserve(claim._replace(repeat=True))
    member.driver._hand_back([Key(row.id, claim.token) for row in found.rows])  # noqa: SLF001
