"""The sweep over one operation: at every request and every reply, until it runs uncut."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from hesape import errors, retry
from hesape_conformance.catalogue import Depth
from hesape_conformance.expect import eventually
from hesape_conformance.relay import Moment, Relay
from hesape_conformance.sweep.operations import AFTER, BEFORE, BETWEEN, RETURNED
from hesape_conformance.sweep.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape.driver import Driver
    from hesape.queue import Queue
    from hesape_conformance.sweep.operations import Operation
    from hesape_conformance.trial import Trial

CLEAN: Final = (Moment.REQUEST, Moment.REPLY)
MOST_CUTS: Final = 60
"""An operation with more round trips than that never ends."""


def sweep(trial: Trial, operation: Operation) -> None:
    """Cut one operation everywhere, and let the report tell how often."""
    server = trial.harness.endpoint()
    assert server is not None, "a networked driver's harness tells the server's endpoint"
    if operation.bare and not trial.driver.migrations():
        trial.notes.append("a store without a schema")
        return
    quick = trial.depth is Depth.QUICK
    cuts = 0
    with Relay(server) as relay:
        sweeper = Sweeper(trial, operation, relay)
        for moment in CLEAN if quick else Moment:
            if not operation.bare:
                cuts += sweeper.attempts(moment, new=False)
            if operation.bare or (not quick and moment in CLEAN) or trial.depth is Depth.FULL:
                cuts += sweeper.attempts(moment, new=True)
            if operation.queue is not None:
                cuts += sweeper.calls(moment)
        if operation.live is not None:
            for moment in CLEAN[quick:]:
                cuts += sweeper.beside_a_consumer(moment)
    trial.notes.append(f"{cuts} cuts")


class Sweeper:
    """One operation and the relay that cuts it."""

    def __init__(self, trial: Trial, operation: Operation, relay: Relay) -> None:
        """Open one driver over the relay, to be used after each of its cuts."""
        self.trial = trial
        self.operation = operation
        self.relay = relay
        self.queue = trial.via(relay.endpoint)
        trial.driver.ping()

    def attempts(self, moment: Moment, *, new: bool) -> int:
        """Cut single attempts of a driver, a new one each time or the same; how many cuts there were."""
        operation = self.operation
        for n in count(1):
            scene = Scene(self.trial, self.trial.queue)
            operation.prepare(scene)
            with self._told(f"one attempt on {'a new' if new else 'an open'} connection", moment, n):
                driver = self._driver(scene, new=new)
                assert operation.look(scene) == operation.before
                with self._armed(n, moment):
                    told = self._attempt(scene, driver)
                found = self._found(scene)
                allowed = operation.outcomes.get(told, frozenset())
                assert found & allowed, _untrue(told, found, allowed)
                self._again(scene, driver, found)
                scene.empty()
                if new:
                    driver.close()
            if not self.relay.was_cut:
                return n - 1
        raise AssertionError

    def _driver(self, scene: Scene, *, new: bool) -> Driver:
        if new:
            return self.trial.harness.open(scene.namespace, endpoint=self.relay.endpoint)
        self.queue.driver.ping()
        return self.queue.driver

    def _attempt(self, scene: Scene, driver: Driver) -> str:
        try:
            self.operation.call(scene, driver, False)  # noqa: FBT003 - the first attempt
        except errors.HesapeError as error:
            assert error.__cause__ is not None, f"{error.code}, and the client library's error isn't the cause"
            return error.code
        return RETURNED

    def _found(self, scene: Scene) -> frozenset[str]:
        """What the store is like; both at once where an operation changes nothing that can be seen."""
        found = self.operation.look(scene)
        like = {BEFORE: self.operation.before, AFTER: self.operation.after}
        return frozenset(name for name, text in like.items() if text == found) or frozenset({BETWEEN, found})

    def _again(self, scene: Scene, driver: Driver, found: frozenset[str]) -> None:
        """Doing it again, by the same driver object, ends where one uncut call ends."""
        operation = self.operation
        try:
            retry.insist(lambda _: operation.call(scene, driver, True))  # noqa: FBT003 - it may have been executed
        except errors.HesapeError as error:
            was = " or ".join(sorted(found))
            over = operation.over is type(error) and AFTER in found
            assert over, f"the store was {was}, and doing it again is refused: {type(error).__name__}: {error}"
        except AssertionError as error:
            message = f"done again, {error}"
            raise AssertionError(message) from error
        after = operation.look(scene)
        assert after == operation.after, f"done again, the store holds {after}, expected {operation.after}"

    def calls(self, moment: Moment) -> int:
        """Cut what an application calls: core repeats it, and it succeeds."""
        operation = self.operation
        assert operation.queue is not None
        for n in count(1):
            scene = Scene(self.trial, self.queue)
            operation.prepare(scene)
            with self._told("a call", moment, n):
                self.queue.driver.ping()
                with self._armed(n, moment):
                    operation.queue(scene, self.queue)
                found = operation.look(scene)
                assert found == operation.after, f"the store holds {found}, expected {operation.after}"
                scene.empty()
            if not self.relay.was_cut:
                return n - 1
        raise AssertionError

    def beside_a_consumer(self, moment: Moment) -> int:
        """Cut calls while somebody else pops and deletes; nothing is lost, and nothing comes more often than it may."""
        operation = self.operation
        assert operation.queue is not None
        assert operation.live is not None
        least, most, left = operation.live
        for n in count(1):
            scene = Scene(self.trial, self.queue)
            operation.prepare(scene)
            own = {job.id for job in (*scene.fresh, *scene.held)}
            with self._told("a call beside a consumer", moment, n):
                self.queue.driver.ping()
                with consumer(self.trial) as got:
                    with self._armed(n, moment):
                        self._call(scene, got)
                    eventually(lambda: self.trial.queue.counts().pending == 0, "the consumer gets everything")
                if operation.name == "pop":
                    got.update(job.id for job in scene.held)
                    assert self.queue.driver.delete_jobs(scene.held) == []
                    own = set(got)
                    assert len(own) == 2, f"{len(own)} of 2 jobs were delivered"
                for job_id in own | set(got):
                    assert least <= got[job_id] <= most, f"a job was delivered {got[job_id]} times"
                assert scene.jobs() == left, f"left are {scene.jobs()}, expected {left}"
                scene.empty()
            if not self.relay.was_cut:
                return n - 1
        raise AssertionError

    def _call(self, scene: Scene, got: Counter[str]) -> None:
        assert self.operation.queue is not None
        try:
            self.operation.queue(scene, self.queue)
        except errors.LeaseLostError:  # the consumer was quicker than the repeat, and says so
            eventually(lambda: any(got[job.id] for job in scene.held), "the consumer has the job")

    @contextmanager
    def _armed(self, n: int, moment: Moment) -> Iterator[None]:
        assert n <= MOST_CUTS, f"it still isn't done after {n} round trips"
        self.relay.cut_at(n, moment)
        try:
            yield
        finally:
            was_cut = self.relay.was_cut
            settled = self.relay.settled()
            self.relay.cut_at(None)
            self.relay.was_cut = was_cut
        assert settled, "the server hasn't ended a connection that was cut"

    @contextmanager
    def _told(self, what: str, moment: Moment, n: int) -> Iterator[None]:
        """Say in a failure where the cut was."""
        try:
            yield
        except Exception as error:
            where = f"{what} of {self.operation.name}, cut {moment} ({n})"
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            message = f"{where}: {kind}{error}"
            raise AssertionError(message) from error


def _untrue(told: str, found: frozenset[str], allowed: frozenset[str]) -> str:
    expected = " or ".join(sorted(allowed)) or "no such end"
    return f"{told}, and the store is {' or '.join(sorted(found))}; expected {expected}"


@contextmanager
def consumer(trial: Trial) -> Iterator[Counter[str]]:
    """Pop and delete beside the block, over a driver of its own; how often each job came, by its id."""
    queue: Queue = trial.another()
    got: Counter[str] = Counter()
    over = threading.Event()
    problems: list[BaseException] = []

    def consume() -> None:
        try:
            while not over.is_set():
                jobs = queue.pop(n=50)
                assert queue.driver.delete_jobs(jobs) == []
                got.update(job.id for job in jobs)
                over.wait(0.002)
        except Exception as error:  # noqa: BLE001 - told by the thread that waits
            problems.append(error)

    thread = threading.Thread(target=consume, daemon=True)
    thread.start()
    try:
        yield got
    finally:
        over.set()
        thread.join(30)
        queue.close()
    assert not problems, f"the consumer failed: {problems[0]!r}"
