"""The steps as Hypothesis chooses, shrinks and repeats them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hesape_conformance.machine.model import Wanted, When
from hesape_conformance.machine.moves import DOORS, FOREIGN, FORGERIES, Moves
from hesape_conformance.machine.stage import LEASE_S, QUEUES, TENANTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hesape_conformance.machine.stage import Held

T = TypeVar("T")

OTHERS: Final = 2
"""The content of a push that is for another tenant."""

_queue, _tenant = st.sampled_from(QUEUES), st.sampled_from(TENANTS)
_queues = st.lists(_queue, min_size=1, max_size=3, unique=True)
_STOCK: Final = {"tenant": _tenant, "queues": st.lists(_queue, min_size=2, max_size=5)}
_priority = st.sampled_from((100, 7))
_due = st.sampled_from((When.NOW,) * 6 + (When.FAR,) * 2 + (When.BRIEFLY,))
_door = st.sampled_from(DOORS)
_pick = st.integers(0, 11)
_picks = st.lists(_pick, min_size=1, max_size=3)
_who = st.sampled_from((*TENANTS, None))
_mostly = st.sampled_from((True, True, False))


@attrs.frozen
class Move:
    """A kind of step, and where it is possible."""

    possible: Callable[[Machine], bool]
    run: Callable[..., None]


@attrs.frozen
class Choice:
    """A step with its arguments: which job or delivery is meant is a number, so that it fits other stories too."""

    move: Move
    arguments: Mapping[str, Any]

    def changed(self, **arguments: Any) -> Choice:
        """The same with other arguments."""
        return attrs.evolve(self, arguments={**self.arguments, **arguments})


MOVES: Final[list[tuple[Move, st.SearchStrategy[dict[str, Any]]]]] = []
"""Every step, as often as it has weight. One rule chooses among them: of several, Hypothesis leaves most out of an
example, and of a few short examples little would be left."""


def move(
    possible: Callable[[Machine], bool], weight: int = 2, **arguments: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a method be chosen."""

    def register(run: Callable[..., None]) -> Callable[..., None]:
        MOVES.extend([(Move(possible, run), st.fixed_dictionaries(arguments))] * weight)
        return run

    return register


def _always(_: Machine) -> bool:
    return True


def _any_job(machine: Machine) -> bool:
    return bool(machine.moves.wanted)


def _any_stored(machine: Machine) -> bool:
    return bool(machine.moves.model.jobs)


def _any_due(machine: Machine) -> bool:
    return bool(machine.moves.waiting())


def _any_failed(machine: Machine) -> bool:
    return bool(machine.moves.model.failed(None))


def _any_delivery(machine: Machine) -> bool:
    return bool(machine.moves.held)


class Machine(RuleBasedStateMachine):
    """One example. What there is to choose from is in lists of a fixed order, and chosen by number."""

    def __init__(self, begin: Callable[[], Moves]) -> None:
        """Begin with an empty store."""
        super().__init__()
        self.moves = begin()
        self.made: list[Choice] = []
        """The steps so far."""

    def _fresh(self, **fields: Any) -> Wanted:
        want = Wanted(job=self.moves.fresh_name(), **fields)
        self.moves.wanted[want.job] = attrs.evolve(want, when=When.NOW)
        return want

    def _known(self, pick: int, **fields: Any) -> Wanted:
        """A job that was pushed before, now perhaps with another content, priority or time."""
        return attrs.evolve(_one(list(self.moves.wanted.values()), pick), **fields)

    @initialize(arguments=st.fixed_dictionaries(_STOCK))
    def begin(self, arguments: dict[str, Any]) -> None:
        """Begin with some jobs, all alike."""
        self.play(Choice(Move(_always, Machine.stock), arguments))

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Make one of the steps that are possible."""
        move, strategy = data.draw(st.sampled_from([each for each in MOVES if each[0].possible(self)]))
        self.play(Choice(move, data.draw(strategy)))

    def play(self, choice: Choice) -> None:
        """Make a step where it is possible."""
        if choice.move.possible(self):
            self.made.append(choice)
            try:
                choice.move.run(self, **choice.arguments)
            except Exception:
                self.moves.findings.choices = self.moves.findings.choices or tuple(self.made)
                raise

    def stock(self, tenant: str, queues: list[str]) -> None:
        """Push some jobs, all alike."""
        self.moves.bulk([self._fresh(tenant=tenant, queue=queue, priority=100) for queue in queues])

    # Pushing.

    @move(_always, tenant=_tenant, queue=_queue, priority=_priority, when=_due, door=_door)
    def push(self, tenant: str, queue: str, priority: int, when: When, door: str) -> None:
        """Push a new job."""
        self.moves.push(self._fresh(tenant=tenant, queue=queue, priority=priority, when=when), door)

    @move(
        _any_job, 4, pick=_pick, content=st.sampled_from((0, 0, 1, OTHERS)), priority=_priority, when=_due, door=_door
    )
    def push_again(self, pick: int, content: int, priority: int, when: When, door: str) -> None:
        """Push an id again, with the same content or another, or for another tenant."""
        want = self._known(pick, content=content, priority=priority, when=when)
        if content == OTHERS:
            want = attrs.evolve(want, tenant=TENANTS[TENANTS.index(want.tenant) - 1])
        self.moves.push(want, door)

    @move(_always, tenant=_tenant, queues=st.lists(_queue, min_size=1, max_size=4), priority=_priority, far=_mostly,
          known=st.one_of(st.none(), st.tuples(_pick, st.integers(0, 1))))  # fmt: skip
    def bulk(self, tenant: str, queues: list[str], priority: int, known: tuple[int, int] | None, *, far: bool) -> None:
        """Push several jobs together, one of them perhaps known, or twice in the bulk."""
        wanted = [self._fresh(tenant=tenant, queue=queue, priority=priority) for queue in queues]
        if not far:
            wanted[-1] = attrs.evolve(wanted[-1], when=When.FAR)
        again = [] if known is None else [self._known(known[0], content=known[1])]
        self.moves.bulk(wanted + [want for want in again if want.tenant == tenant])

    @move(_always, 1, kind=st.sampled_from(FORGERIES), tenant=_tenant)
    def forge(self, kind: str, tenant: str) -> None:
        """Push what no grant covers."""
        self.moves.forge(kind, tenant)

    # Delivering.

    @move(_any_due, 4, queues=_queues, n=st.integers(1, 3))
    def pop(self, queues: list[str], n: int) -> None:
        """Pop."""
        self.moves.pop(queues, n, When.FAR)

    @move(_any_due, queue=_queue, n=st.integers(1, 2))
    def let_lapse(self, queue: str, n: int) -> None:
        """Pop where something is due, and let the leases run out."""
        moves = self.moves
        due = [moves.model.jobs[name] for name in moves.waiting()]
        chosen = queue if queue in {job.queue for job in due} else due[0].queue
        altered = any(job.tampered for job in due if job.queue == chosen)  # parked while the lease lasts, or not at all
        moves.pop([chosen], n, When.FAR if altered else When.BRIEFLY)

    @move(_any_due, 3, first=st.integers(0, 2), n=st.integers(1, 6))
    def pop_everywhere(self, first: int, n: int) -> None:
        """Pop from every queue."""
        self.moves.pop(QUEUES[first:] + QUEUES[:first], n, When.FAR)

    @move(_any_delivery, 4, picks=_picks, current=_mostly)
    def delete(self, picks: list[int], *, current: bool) -> None:
        """Delete."""
        self.moves.delete(self._some(picks, current=current))

    @move(_any_delivery, 4, pick=_pick, current=_mostly, when=_due, exceptions=st.integers(0, 2), spent=_mostly)
    def release(self, pick: int, when: When, exceptions: int, *, current: bool, spent: bool) -> None:
        """Release."""
        self.moves.release(self._some([pick], current=current)[0], when, exceptions, spent=spent)

    @move(_any_delivery, 4, pick=_pick, current=_mostly, exceptions=st.integers(0, 2))
    def fail(self, pick: int, exceptions: int, *, current: bool) -> None:
        """Fail."""
        self.moves.fail(self._some([pick], current=current)[0], exceptions)

    @move(_any_delivery, 4, picks=_picks, current=_mostly, lease_s=st.sampled_from((None, 0.0, 1.0, LEASE_S * 2)))
    def keep_or_hand_back(self, picks: list[int], lease_s: float | None, *, current: bool) -> None:
        """Extend, or hand back."""
        chosen = self._some(picks, current=current)
        if lease_s is None:
            self.moves.hand_back(chosen)
        else:
            self.moves.extend(chosen, lease_s)

    @move(_any_job, what=st.sampled_from(FOREIGN), pick=_pick)
    def foreign(self, what: str, pick: int) -> None:
        """Settle by a foreign token."""
        moves = self.moves
        held = [name for name, job in moves.model.jobs.items() if job.delivery]
        moves.foreign(what, _one(held or list(moves.model.jobs) or list(moves.wanted), pick))

    def _some(self, picks: list[int], *, current: bool) -> list[Held]:
        moves = self.moves
        wanted = moves.current() if current else moves.stale()
        chosen = [_one(wanted or moves.held, pick) for pick in picks]
        return list(dict.fromkeys(chosen))

    # Repairing.

    @move(_any_due, pick=_pick, pops=_mostly)
    def pause(self, pick: int, *, pops: bool) -> None:
        """Pause a queue where something is due, and mostly pop from it."""
        moves = self.moves
        queue = moves.model.jobs[_one(moves.waiting(), pick)].queue
        moves.pause(queue, on=True)
        if pops:
            moves.pop([queue, *(other for other in QUEUES if other != queue)], 2, When.FAR)

    @move(_always, queue=_queue)
    def resume(self, queue: str) -> None:
        """Resume a queue, one that is paused if there is one."""
        self.moves.pause(min(self.moves.model.paused, default=queue), on=False)

    @move(_any_stored, 1, queue=_queue, age_s=st.sampled_from((None, 0.0, 3_600.0)))
    def clear(self, queue: str, age_s: float | None) -> None:
        """Remove failed jobs, where there are any, or clear a queue."""
        if _any_failed(self):
            self.moves.flush(age_s)
        else:
            self.moves.clear(queue)

    @move(_any_job, who=_who, picks=_picks, failed=_mostly)
    def retry(self, who: str | None, picks: list[int], *, failed: bool) -> None:
        """Retry failed jobs, or others."""
        self.moves.retry(who, self._names(picks, failed=failed))

    @move(_any_job, 1, who=_who, picks=_picks, failed=_mostly)
    def forget(self, who: str | None, picks: list[int], *, failed: bool) -> None:
        """Forget failed jobs, or others."""
        self.moves.forget(who, self._names(picks, failed=failed)[:2])

    def _names(self, picks: list[int], *, failed: bool) -> list[str]:
        listed = [job.job for job in self.moves.model.failed(None)]
        names = listed if failed and listed else list(self.moves.wanted)
        chosen = {_one(names, pick) for pick in picks[: None if names is listed else 1]}
        return [name for name in self.moves.wanted if name in chosen]  # in push order, which their line is in then

    @move(_always, who=_who, queue=st.one_of(st.none(), _queue), limit=st.integers(1, 9))
    def look(self, who: str | None, queue: str | None, limit: int) -> None:
        """Look at the failed list."""
        self.moves.look(who, queue, limit)

    @move(_any_stored, pick=_pick, field=st.sampled_from(("envelope", "name")), pops=_mostly)
    def tamper(self, pick: int, field: str, *, pops: bool) -> None:
        """Change a stored record, and mostly pop it."""
        moves = self.moves
        name = _one(moves.waiting() if pops and _any_due(self) else list(moves.model.jobs), pick)
        moves.tamper(name, field)
        if pops:
            moves.pop([moves.model.jobs[name].queue], 6, When.FAR)


def _one(things: Sequence[T], pick: int) -> T:
    return things[pick % len(things)]
