"""Choosing the store of each push (I2).

Only what was refused, and what was surely not written, moves on to the next store. A push whose outcome is unknown is
repeated where it was sent, under the same ids, also when the application repeats it later: anywhere else it would be a
second job.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hesape import retry
from hesape.drivers.failover.routing import Routes
from hesape.errors import (
    HesapeError,
    OutcomeUnknownError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
    UnsupportedError,
)
from hesape.events import QueueFailedOver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hesape.drivers.failover.member import Member
    from hesape.events import Event
    from hesape.records import NewRow

logger = logging.getLogger(__name__)


class Pushes:
    """Sends each push to the first member that takes it."""

    def __init__(self, connection: str, members: Sequence[Member]) -> None:
        """Choose among `members`, the preferred one first."""
        self._connection = connection
        self._members = members
        self._unknown: Routes[str] = Routes()
        """Where pushes of unknown outcome were sent, by the jobs' ids."""

    def store(self, rows: Sequence[NewRow], notify: Callable[[Event], None] | None) -> None:
        """Store rows in one member, all or nothing."""
        bound = self._bound(rows)
        if bound is not None:
            self._send_again(bound, rows)
            return
        failures: list[tuple[str, StoreError]] = []
        candidates = [member for member in self._members if member.takes_pushes()] or list(self._members)
        for member in candidates:
            try:
                self._send(member, rows)
            except StoreRefusedError as error:
                failures.append((member.name, error))
                member.refused(error)
            except StoreUnavailableError as error:
                failures.append((member.name, error))
                if not isinstance(error, StoreBusyError):
                    member.unreachable(error)
            else:
                self._taken(member, rows, notify)
                return
        *others, (_, failure) = failures
        for name, earlier in others:
            failure.add_note(f"before it, connection {name}: {type(earlier).__name__}: {earlier}")
        raise failure

    def _bound(self, rows: Sequence[NewRow]) -> Member | None:
        """The member that an earlier send of one of these may have reached."""
        found = {member for row in rows if (member := self._unknown.find(row.id)) is not None}
        if len(found) > 1:
            names = " and ".join(sorted(member.name for member in found))
            message = f"earlier pushes of these jobs may be stored on {names}: push them one by one"
            raise UnsupportedError(message)
        return next(iter(found), None)

    def _send(self, member: Member, rows: Sequence[NewRow]) -> None:
        for last in (False, True):
            try:
                member.driver._store(rows, None)  # noqa: SLF001 - core's own
            except StoreBusyError:
                if last:
                    raise
            except OutcomeUnknownError:
                self._unknown.add([row.id for row in rows], member)
                self._send_again(member, rows)
                return
            else:
                return

    def _send_again(self, member: Member, rows: Sequence[NewRow]) -> None:
        """Repeat a push that may have been stored, until its store has an answer or patience ends."""
        ids = [row.id for row in rows]
        try:
            retry.insist(lambda _: member.driver._store(rows, None))  # noqa: SLF001
        except (StoreUnavailableError, StoreRefusedError, OutcomeUnknownError) as error:
            if not isinstance(error, StoreRefusedError):
                member.unreachable(error)
            message = f"connection {member.name!r} may have stored it, and doesn't answer; push it again later: {error}"
            raise OutcomeUnknownError(message) from error
        except HesapeError:  # it says what is stored there
            self._unknown.drop(ids)
            raise
        self._unknown.drop(ids)

    def _taken(self, member: Member, rows: Sequence[NewRow], notify: Callable[[Event], None] | None) -> None:
        member.took_a_push()
        for other in self._members:
            if other is member:
                return
            trouble = other.trouble
            if trouble is not None and other.first_to_tell():
                error = type(trouble).__name__
                said = (self._connection, member.name, other.name, error)
                logger.warning("connection %s: pushes go to %s, since %s doesn't take them: %s", *said)
                if notify is not None:
                    event = QueueFailedOver(
                        connection=self._connection, queue=rows[0].queue, member=member.name, error=error
                    )
                    notify(event)
