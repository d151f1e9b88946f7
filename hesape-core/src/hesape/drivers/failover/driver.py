"""The failover driver: a composite. Everything it is asked, it asks of the stores behind it.

What holds for one store holds for each member: grants, payloads, identity, leases and settling are theirs. Order,
counts and coordination hold member by member: a job on the second store doesn't wait for an older one on the first, a
list of ids is all or nothing on each store and not on all together, an id that was pushed to one store isn't known to
another. Locks, counters and flags live in the first member.
"""
# ruff: noqa: D102, SLF001 - the contract, hesape.driver, says what each method does; and it calls members as core does

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import ClassVar

import attrs

from hesape.driver import Capability, Driver, DriverSpec
from hesape.drivers.failover import looking
from hesape.drivers.failover.claiming import Claims, delete_anywhere
from hesape.drivers.failover.member import Member
from hesape.drivers.failover.plugin import SPEC
from hesape.drivers.failover.pushing import Pushes
from hesape.drivers.failover.routing import Routes
from hesape.drivers.failover.waiting import Waits
from hesape.errors import OutcomeUnknownError, StoreError, StoreUnavailableError, UnsupportedError
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow


class FailoverDriver(Driver):
    """Several stores behind one name. They stay connections of their own: closing this closes none of them."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, connection: str, members: Mapping[str, Driver]) -> None:
        """Put `connection` before `members`, by name, the preferred one first."""
        self._members = [Member(name, driver) for name, driver in members.items()]
        self._first = self._members[0].driver
        self._routes: Routes[Key] = Routes()
        self._claims = Claims(self._members, self._routes)
        self._pushes = Pushes(connection, self._members)
        self._waits = Waits()
        # What it can do is known only with its members; the class's spec claims nothing.
        self.spec = _spec([driver.spec for driver in members.values()])  # type: ignore[misc]

    @property
    def members(self) -> list[str]:
        """The names of the connections behind it, the preferred one first."""
        return [member.name for member in self._members]

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        if any(row.unique for row in rows):
            message = "a failover connection can't keep a unique key: its stores don't know of each other's jobs"
            raise UnsupportedError(message)
        self._pushes.store(rows, self.notify)

    def reserve(self, claim: Claim) -> Claimed:
        return self._claims.claim(claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        def delete(member: Member | None, part: Sequence[Key]) -> list[Key]:
            if member is None:
                return delete_anywhere(self._members, part, repeat=repeat)
            return member.ask(lambda again: member.driver._delete(part, repeat=repeat or again, tx=None))

        lost = looking.one_by_one(self._routes.split(keys), delete)
        self._routes.drop(keys)
        return list(chain.from_iterable(lost))

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        def release(driver: Driver) -> bool:
            return driver._release(key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions, tx=None)

        return self._settle(key, release)

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        return self._settle(key, lambda driver: driver._fail(key, error=error, exceptions=exceptions, tx=None))

    def _settle(self, key: Key, call: Callable[[Driver], bool]) -> bool:
        member = self._routes.find(key)
        if member is None:
            return self._settle_anywhere(call)
        current = member.ask(lambda _: call(member.driver))
        self._routes.drop([key])
        return current

    def _settle_anywhere(self, call: Callable[[Driver], bool]) -> bool:
        failure: StoreError | None = None
        for member in self._members:
            try:
                if member.ask(lambda _, driver=member.driver: call(driver)):  # type: ignore[misc]
                    return True
            except StoreError as error:
                failure = error
        if failure is not None:
            raise failure
        return False

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        found: dict[Key, int | None] = {}
        for member, part in self._routes.split(keys).items():
            for one in self._members if member is None else [member]:
                deadlines = one.ask(lambda _, driver=one.driver, part=part: driver._extend(part, lease_us))  # type: ignore[misc]
                found |= {key: moment for key, moment in zip(part, deadlines, strict=True) if moment is not None}
        return [found.get(key) for key in keys]

    def _hand_back(self, keys: Sequence[Key]) -> None:
        for member, part in self._routes.split(keys).items():
            for one in self._members if member is None else [member]:
                _hand_back_to(one, part)
        self._routes.drop(keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        found = looking.some(self._members, lambda driver: driver.beat(worker, ttl_us, lease_us, but))
        return frozenset().union(*found)

    def retire(self, worker: str) -> int:
        return sum(looking.some(self._members, lambda driver: driver.retire(worker)))

    def rescue(self) -> int:
        return sum(looking.some(self._members, lambda driver: driver.rescue()))

    def workers(self) -> list[WorkerRow]:
        return looking.workers(self._members)

    # Look and repair.

    def counts(self, queue: str) -> Counts:
        return looking.counts(self._members, queue)

    def queues(self) -> list[str]:
        return sorted(set().union(*looking.every(self._members, lambda driver: driver.queues())))

    def oldest_pending(self, queue: str) -> int | None:
        found = looking.every(self._members, lambda driver: driver.oldest_pending(queue))
        return min((moment for moment in found if moment is not None), default=None)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        return looking.failed(self._members, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        return looking.find(self._members, tenant, job_id)[1]

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        owners = looking.owners(self._members, tenant, ids)
        looking.one_by_one(owners, lambda member, part: member.driver.retry(tenant, part))

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        owners = looking.owners(self._members, tenant, ids)
        return sum(looking.one_by_one(owners, lambda member, part: member.driver.forget(tenant, part)))

    def prune(self, older_than_us: int | None) -> int:
        return sum(looking.every(self._members, lambda driver: driver.prune(older_than_us)))

    def clear(self, queue: str) -> int:
        return sum(looking.every(self._members, lambda driver: driver.clear(queue)))

    def pause(self, queue: str) -> None:
        looking.every(self._members, lambda driver: driver.pause(queue))

    def resume(self, queue: str) -> None:
        looking.every(self._members, lambda driver: driver.resume(queue))

    # Coordinate: in the first member, whatever becomes of it, or the same lock would be held twice (K1).

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        return self._first.lock(key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        return self._first.unlock(key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        return self._first.increment(key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        return self._first.read_flag(key)

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        self._first.write_flag(key, value, ttl_us)

    def erase_flag(self, key: str) -> None:
        self._first.erase_flag(key)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        reachable = [member for member in self._members if member.reachable]
        return self._waits.wait(reachable or self._members, queues, timeout_s)

    def migrations(self) -> list[Migration]:
        """None of its own: `migrate` takes its members through theirs."""
        return []

    def migrate(self) -> list[int]:
        return sorted(set().union(*looking.every(self._members, lambda driver: driver.migrate())))

    def schema_version(self) -> int:
        return 0

    def now(self) -> int:
        return looking.some(self._members, lambda driver: driver.now())[0]

    def ping(self) -> str:
        return "; ".join(f"{member.name}: {_sign_of_life(member)}" for member in self._members)

    def close(self) -> None:
        """Ask nobody for signs of life any more. The members are connections of their own."""
        for member in self._members:
            member.close()


def _spec(specs: Sequence[DriverSpec]) -> DriverSpec:
    """What all members can do, and are; a transaction can join only one of them."""
    return attrs.evolve(
        SPEC,
        capabilities=reduce(frozenset.intersection, [spec.capabilities for spec in specs]) - {Capability.TRANSACTIONS},
        facts=reduce(frozenset.intersection, [spec.facts for spec in specs]),
    )


def _hand_back_to(member: Member, keys: Sequence[Key]) -> None:
    """Hand back now, or when the store can be reached again: nobody waits for that."""
    try:
        member.ask(lambda _: member.driver._hand_back(keys))
    except (StoreUnavailableError, OutcomeUnknownError):
        member.owe(lambda: member.driver._hand_back(keys))


def _sign_of_life(member: Member) -> str:
    try:
        return member.driver.ping()
    except StoreError as error:
        return f"can't be reached ({type(error).__name__})"
