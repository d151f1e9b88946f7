"""The store behind a FakeQueue: the memory driver, with a record of how jobs were settled."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import attrs

from hesape.driver import Capability
from hesape.drivers.memory.driver import MemoryDriver

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from hesape.driver import DriverSpec
    from hesape.records import Claim, Claimed, Key, NewRow

How: TypeAlias = Literal["delete", "release", "fail"]


@attrs.frozen(kw_only=True)
class Settlement:
    """How one delivery of a job ended."""

    id: str
    how: How
    delay_s: float = 0.0
    """How long a released job waits."""
    spent: bool = True
    """Whether a release cost an attempt."""
    error: str | None = attrs.field(default=None, repr=False)
    """The error that was stored with it: `Class: message`, a blank line, the traceback."""
    tx: object = attrs.field(default=None, repr=False)
    """The connection that was lent for it."""


class FakeDriver(MemoryDriver):
    """Takes `tx=` as a store with transactions does, and stores at once: a rollback takes nothing back."""

    spec: ClassVar[DriverSpec] = attrs.evolve(
        MemoryDriver.spec,
        name="fake",
        summary="for tests",
        capabilities=MemoryDriver.spec.capabilities | {Capability.TRANSACTIONS},
    )

    def __init__(self) -> None:
        """Hold nothing."""
        super().__init__()
        self.settlements: list[Settlement] = []

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        super()._store(rows, None)

    def reserve(self, claim: Claim) -> Claimed:
        """As the store in memory, recording what it deletes."""
        found = super().reserve(claim)
        self._deleted(claim.done, found.lost, None)
        return found

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        lost = super()._delete(keys, repeat=repeat, tx=None)
        self._deleted(keys, lost, tx)
        return lost

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        current = super()._release(key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions, tx=None)
        if current:
            settlement = Settlement(
                id=key.id, how="release", delay_s=delay_us / 1_000_000, spent=spent, error=error, tx=tx
            )
            self.settlements.append(settlement)
        return current

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        current = super()._fail(key, error=error, exceptions=exceptions, tx=None)
        if current:
            self.settlements.append(Settlement(id=key.id, how="fail", error=error, tx=tx))
        return current

    def _deleted(self, keys: Sequence[Key], lost: Sequence[Key], tx: object) -> None:
        self.settlements += [Settlement(id=key.id, how="delete", tx=tx) for key in keys if key not in lost]
