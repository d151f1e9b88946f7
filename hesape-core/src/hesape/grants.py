"""Grants: the proof that somebody was allowed to do something, without which nothing is pushed (G1, G3).

A `Grant` is an empty handle. What it proves lies beside it, in a table that only this module's closure reaches, so
there is no field to edit, to copy or to pickle, and a handle made in any other way proves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Never, NoReturn, Protocol, Self
from weakref import WeakKeyDictionary

import attrs

from hesape import names
from hesape.errors import ForbiddenError, ForgedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SYSTEM = "system"
"""The subject of grants that no person stands behind."""


def _roles(roles: Iterable[str]) -> frozenset[str]:
    return frozenset(roles)


@attrs.frozen(kw_only=True)
class Subject:
    """Who acts, and for which tenant. Comes from a session, never from a request's body."""

    id: str
    tenant: str
    roles: frozenset[str] = attrs.field(default=frozenset(), converter=_roles)


class Policy(Protocol):
    """Decides whether a subject may do something with a resource."""

    def can(self, subject: Subject, action: str, resource: Any, /) -> bool:
        """Return `True` to allow; everything else, truthy values included, refuses."""


class _Facts(NamedTuple):
    """What was granted, in plain values: nothing here is shared with a caller who might edit it."""

    tenant: str
    action: str
    subject_id: str
    roles: frozenset[str]


class Grant:
    """Proves that a subject was allowed an action for a tenant.

    It comes from `authorize`, `system_grant` and `grant_for` alone. It can't be built, subclassed, copied or pickled;
    a handle that wasn't issued has no tenant and passes no check (G1).
    """

    __slots__ = ("__weakref__",)

    def __new__(cls, _issuer: Never) -> Self:
        """Refuse: grants are issued, not built."""
        raise ForgedError(_BUILT)

    def __init_subclass__(cls, **_: object) -> None:
        """Refuse: a subclass could answer for itself."""
        message = "Grant can't be subclassed; grants come from authorize, system_grant and grant_for"
        raise ForgedError(message)

    @property
    def subject(self) -> Subject:
        """Who was allowed; a subject without id and tenant when this wasn't issued."""
        known = _read(self)
        return Subject(id=known.subject_id, tenant=known.tenant, roles=known.roles)

    @property
    def action(self) -> str:
        """What was allowed; empty when this wasn't issued."""
        return _read(self).action

    @property
    def tenant(self) -> str:
        """For whom it was allowed; empty when this wasn't issued."""
        return _read(self).tenant

    def check(self, action: str) -> None:
        """Raise `ForbiddenError` unless this was issued for exactly `action`."""
        known = _read(self)
        if not known.tenant:
            message = "this grant was not issued; call hesape.authorize or hesape.system_grant"
            raise ForbiddenError(message)
        if known.action != action:
            message = f"the grant is for the action {known.action!r}, this needs {action!r}"
            raise ForbiddenError(message)

    def __copy__(self) -> NoReturn:
        """Refuse."""
        raise ForgedError(_COPIED)

    def __deepcopy__(self, memo: object) -> NoReturn:
        """Refuse."""
        raise ForgedError(_COPIED)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse: a grant is a fact of this process."""
        raise ForgedError(_COPIED)

    def __repr__(self) -> str:
        """Name the facts."""
        known = _read(self)
        if not known.tenant:
            return "<Grant: not issued>"
        return f"<Grant {known.action} for {known.tenant} by {known.subject_id}>"


_BUILT = "a Grant can't be built; it comes from hesape.authorize, hesape.system_grant or hesape.grant_for"
_COPIED = "a Grant can't be copied or pickled; pass the one you were given, or call hesape.grant_for in the worker"
_NOBODY = _Facts("", "", "", frozenset())


def _issuer() -> tuple[Callable[[_Facts], Grant], Callable[[object], _Facts]]:
    issued: WeakKeyDictionary[Grant, _Facts] = WeakKeyDictionary()

    def issue(facts: _Facts) -> Grant:
        grant = object.__new__(Grant)
        issued[grant] = facts
        return grant

    def read(grant: object) -> _Facts:
        return issued.get(grant, _NOBODY) if type(grant) is Grant else _NOBODY

    return issue, read


_issue, _read = _issuer()


def authorize(policy: Policy, subject: Subject, action: str, resource: Any = None) -> Grant:
    """Ask `policy` whether `subject` may do `action` with `resource`, and return the proof.

    The subject is looked at first: one without an id raises `ForbiddenError` and the policy isn't asked. An invalid
    tenant or action raises `NameInvalidError`. Any answer of the policy but `True` raises `ForbiddenError` (G1).
    """
    if not isinstance(subject, Subject) or not subject.id:
        message = (
            f"{action!r} was asked for without a subject; sign in first, or use system_grant for work of the system"
        )
        raise ForbiddenError(message)
    granted = _Facts(
        names.check_tenant(subject.tenant),
        names.check_action(action),
        names.check_text("subject id", subject.id),
        subject.roles,
    )
    if policy.can(subject, action, resource) is not True:
        message = f"{type(policy).__name__} doesn't allow {subject.id!r} of {subject.tenant!r} the action {action!r}"
        raise ForbiddenError(message)
    return _issue(granted)


def system_grant(action: str, tenant: str) -> Grant:
    """A grant for work that no person stands behind: schedules, migrations, the command line.

    No policy is asked, so treat each call as a door: its name is there to be searched for. An invalid tenant or
    action raises `NameInvalidError`.
    """
    return _issue(_Facts(names.check_tenant(tenant), names.check_action(action), SYSTEM, frozenset((SYSTEM,))))


def facts(grant: object) -> tuple[str, str, str]:
    """Tenant, action and subject id of an issued grant; empty texts for anything else. For core's own checks."""
    return _read(grant)[:3]
