"""Which member holds what: deliveries by their keys, and pushes of unknown outcome by their ids."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from hesape.drivers.failover.member import Member

K = TypeVar("K", bound=Hashable)

MOST: Final = 50_000
"""How many are remembered: far more than a process holds. What is forgotten is looked for in every member."""


class Routes(Generic[K]):
    """Members by key, the oldest forgotten first. Threads share it: each step is one of a dict."""

    def __init__(self) -> None:
        """Know nothing."""
        self._members: dict[K, Member] = {}

    def add(self, keys: Iterable[K], member: Member) -> None:
        """These are with `member`."""
        self._members.update(dict.fromkeys(keys, member))
        if len(self._members) > MOST:
            self.drop(list(self._members)[: MOST // 10])

    def drop(self, keys: Iterable[K]) -> None:
        """These are over."""
        for key in keys:
            self._members.pop(key, None)

    def find(self, key: K) -> Member | None:
        """Who holds it, if that is known."""
        return self._members.get(key)

    def split(self, keys: Sequence[K]) -> dict[Member | None, list[K]]:
        """The keys by member; under `None` those of which nothing is known."""
        found: dict[Member | None, list[K]] = {}
        for key in keys:
            found.setdefault(self._members.get(key), []).append(key)
        return found
