"""Carries a schedule out: picks who is hit, strikes, notes it first, and ends what was meant to end."""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from hesape.driver import Fact
from hesape_conformance.harness import NotOfferedError
from hesape_conformance.torture.plan import Blow, Strike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hesape_conformance.harness import Harness
    from hesape_conformance.history import Recorder
    from hesape_conformance.torture.fleet import Fleet, Post

T = TypeVar("T")

TICK_S: Final = 0.05
PATIENCE: Final = 3
"""How many times as long as it was asked for a run may last."""
_PAST_LEASE_S: Final = 1.5
"""How much longer than its lease a frozen worker stays so, at least."""
_STALL_S: Final = 1.0
_DOWN_S: Final = 0.5
_AGAIN_S: Final = 1.0
"""A strike that finds nobody is tried again after this."""
_LOCKED_S: Final = 3.0


def possible(harness: Harness, *, networked: bool) -> frozenset[Blow]:
    """The blows that a store and its harness can suffer."""
    found = frozenset(Blow) - {Blow.OUTAGE, Blow.CUT, Blow.KILL_SERVER, Blow.RESTART_SERVER}
    if not networked:
        return found | {Blow.OUTAGE}
    if harness.can_restart:
        found |= {Blow.KILL_SERVER, Blow.RESTART_SERVER}
    own = harness.can_restart  # on a server that others use too, their sessions aren't ours to end
    return found | {Blow.CUT} if own else found


Due = tuple[float, int, "Callable[[], object]"]


class Chaos:
    """Strikes a fleet and its store."""

    def __init__(
        self, harness: Harness, namespace: str, fleet: Fleet, recorder: Recorder, tell: Callable[[str], None]
    ) -> None:
        """Strike through `harness`; `tell` hears of each strike."""
        self._harness = harness
        self._namespace = namespace
        self._fleet = fleet
        self._recorder = recorder
        self._tell = tell
        self._frozen: set[int] = set()
        self._killed: set[int] = set()
        """A killed process is still its parent's child until that has looked."""
        self._due: list[Due] = []
        """The strikes to come."""
        self._ends: list[Due] = []
        """What must be ended, also when time is over."""
        self._numbers = itertools.count()
        self._began = 0.0
        self._is_over: Callable[[], bool] = bool
        self._embedded = Fact.NETWORKED not in harness.spec().facts
        self._outages: list[ExitStack] = []
        self._locked_by_frozen = False
        self._enough = False
        self._ask_at = 0.0
        self.dealt: Counter[str] = Counter()
        """The blows that hit somebody."""
        self.kills_in_a_job = 0
        """Worker processes that were killed while a handler ran in them."""

    def run(self, strikes: Sequence[Strike], seconds: float, enough: Callable[[], bool]) -> None:
        """Strike for so long, on a slow machine up to `PATIENCE` times as long until it is enough.

        Then wait until everything that was stopped goes on.
        """
        self._began = time.monotonic()
        self._is_over = lambda: self._past(seconds) and (self._past(seconds * PATIENCE) or self._has(enough))
        for strike in strikes:
            self._then(self._due, strike.at_s, partial(self._strike, strike))
        while self._ends or not self._is_over():
            while self._carry_out(self._ends):  # before each strike: one that has to wait for the frozen mustn't
                pass
            self._carry_out(self._due)
            self._fleet.tend()
            time.sleep(TICK_S)

    @staticmethod
    def _carry_out(due: list[Due]) -> bool:
        """Do the next thing that is due; whether there was one."""
        if not due or due[0][0] > time.monotonic():
            return False
        heapq.heappop(due)[2]()
        return True

    def _has(self, enough: Callable[[], bool]) -> bool:
        """Ask once a second at most."""
        if not self._enough and time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + 1.0
            self._enough = enough()
        return self._enough

    def _past(self, seconds: float) -> bool:
        return time.monotonic() > self._began + seconds

    def _then(self, due: list[Due], seconds: float, do: Callable[[], object]) -> None:
        heapq.heappush(due, (time.monotonic() + seconds, next(self._numbers), do))

    def _strike(self, strike: Strike) -> None:
        if self._is_over():
            return
        at_s = time.monotonic() - self._began
        hit = getattr(self, f"_{strike.blow.name.lower()}")(strike)
        if hit:
            self.dealt[strike.blow] += 1
            self._tell(f"{at_s:7.2f} s  {strike.blow}: {hit}")
        else:
            self._then(self._due, _AGAIN_S, partial(self._strike, strike))

    # Whom.

    def _posts(self, posts: Iterable[Post]) -> list[Post]:
        """Those that run, and no part of which is frozen."""
        return [
            post
            for post in posts
            if post.process is not None
            and post.process.poll() is None
            and not post.expected
            and not self._frozen & {post.pid, *self._fleet.workers(post)}
        ]

    def _supervisors(self, *, short: bool | None = None) -> list[Post]:
        """Those with the shortest lease, the others, or all."""
        found = self._fleet.supervisors
        least = min(post.lease_s for post in found)
        return [post for post in found if short is None or (post.lease_s == least) == short]

    def _workers(self, posts: Iterable[Post]) -> list[int]:
        """Worker processes that run a handler and aren't frozen."""
        spared = self._frozen | self._killed
        found = [pid for post in posts for pid in self._fleet.workers(post) if pid not in spared]
        return [pid for pid in found if self._fleet.is_busy(pid)]

    # Processes.

    def _kill_worker(self, strike: Strike) -> str:
        return self._send(_pick(strike, self._workers(self._supervisors())), signal.SIGKILL)

    def _kill_supervisor(self, strike: Strike) -> str:
        return self._kill_post(_pick(strike, self._posts(self._supervisors())))

    def _kill_machine(self, strike: Strike) -> str:
        post = _pick(strike, self._posts(self._supervisors()))
        workers = self._fleet.workers(post) if post else []
        return self._kill_post(post) + "".join(" " + self._send(pid, signal.SIGKILL) for pid in workers)

    def _kill_producer(self, strike: Strike) -> str:
        return self._kill_post(_pick(strike, self._posts(self._fleet.producers)))

    def _kill_post(self, post: Post | None) -> str:
        if post is None:
            return ""
        post.expected = True
        return f"{post.name} " + self._send(post.pid, signal.SIGKILL)

    def _stop(self, strike: Strike) -> str:
        post = _pick(strike, self._posts(self._supervisors(short=False)))
        if post is None:
            return ""
        post.expected = True
        return f"{post.name} " + self._send(post.pid, signal.SIGTERM)

    def _send(self, pid: int | None, number: signal.Signals) -> str:
        if pid is None:
            return ""
        self._fleet.signal(pid, number)
        if number is signal.SIGKILL and pid not in self._killed:
            self._killed.add(pid)
            self.kills_in_a_job += self._fleet.is_busy(pid)
        return str(pid)

    # Frozen for a while.

    def _freeze_worker(self, strike: Strike) -> str:
        posts = self._supervisors(short=True)
        lasts_s = posts[0].lease_s + _PAST_LEASE_S + strike.for_s
        return self._freeze([_pick(strike, self._workers(posts))], lasts_s, in_a_job=True)

    def _freeze_machine(self, strike: Strike) -> str:
        post = _pick(strike, self._posts(self._supervisors(short=True)))
        if post is None or not self._workers([post]):
            return ""
        lasts_s = post.lease_s + _PAST_LEASE_S + strike.for_s
        return self._freeze([*self._fleet.workers(post), post.pid], lasts_s, in_a_job=True)

    def _stall_worker(self, strike: Strike) -> str:
        return self._freeze(
            [_pick(strike, self._workers(self._supervisors(short=False)))], _STALL_S + 1.5 * strike.for_s
        )

    def _stall_supervisor(self, strike: Strike) -> str:
        post = _pick(strike, self._posts(self._supervisors(short=False)))
        return self._freeze([post.pid] if post else [], _STALL_S + 2 * strike.for_s)

    def _freeze(self, pids: Sequence[int | None], seconds: float, *, in_a_job: bool = False) -> str:
        """Stop processes for so long; nobody when they were to be in a job, and it ended just before."""
        known = [pid for pid in pids if pid is not None and Path(f"/proc/{pid}").exists()]
        began = time.monotonic()
        for pid in known:
            self._frozen.add(pid)
            self._fleet.signal(pid, signal.SIGSTOP)
        if in_a_job and not any(map(self._fleet.is_busy, known)):
            self._thaw(known)
            return ""
        if known:
            self._then(self._ends, seconds, partial(self._thaw, known))
            if self._embedded and not self._outages:
                self._look_for_frozen_locks(began)
        return " ".join(map(str, known)) + (f" for {seconds:.1f} s" if known else "")

    def _thaw(self, pids: Iterable[int]) -> None:
        for pid in pids:
            self._frozen.discard(pid)
            self._fleet.signal(pid, signal.SIGCONT)
        if self._locked_by_frozen and not self._frozen:
            self._locked_by_frozen = False
            self._recorder.note("back", why="frozen in the store")

    # The store.

    def _cut(self, strike: Strike) -> str:
        self._recorder.note("cut")
        try:
            self._harness.cut_sessions()
        except NotOfferedError:
            return ""
        return "all"

    def _kill_server(self, strike: Strike) -> str:
        self._recorder.note("away", why="server killed")
        self._harness.kill()
        time.sleep(_DOWN_S + 1.5 * strike.for_s)
        return self._start_server("server killed")

    def _restart_server(self, strike: Strike) -> str:
        self._recorder.note("away", why="server restarted")
        return self._start_server("server restarted")

    def _start_server(self, why: str) -> str:
        began = time.monotonic()
        self._harness.restart()
        self._recorder.note("back", why=why)
        return f"back after {time.monotonic() - began:.1f} s"

    def _outage(self, strike: Strike) -> str:
        if self._outages:
            return ""
        self._recorder.note("away", why="outage")
        self._outages.append(stack := ExitStack())
        try:
            stack.enter_context(self._harness.outage(self._namespace))
        except Exception:  # noqa: BLE001 - not offered, or locked by somebody who is frozen
            self._is_back("outage")
            return ""
        seconds = _LOCKED_S + strike.for_s
        self._then(self._ends, seconds, partial(self._is_back, "outage"))
        return f"for {seconds:.1f} s"

    def _look_for_frozen_locks(self, since: float) -> None:
        """An embedded store may be locked by whoever was frozen: nobody reaches it until it goes on."""
        try:
            with self._harness.outage(self._namespace):
                pass
        except NotOfferedError:
            return
        except Exception:  # noqa: BLE001 - however the store says that it is locked
            self._recorder.note("away", at=since, why="frozen in the store")
            self._locked_by_frozen = True

    def _is_back(self, why: str) -> None:
        while self._outages:
            self._outages.pop().close()
        self._recorder.note("back", why=why)


def _pick(strike: Strike, found: Sequence[T]) -> T | None:
    return found[int(strike.pick * len(found))] if found else None
