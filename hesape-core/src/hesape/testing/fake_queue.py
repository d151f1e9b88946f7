"""A queue for tests: the real one over a store in memory, with assertions."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape import times
from hesape.errors import ConfigError, UnsupportedError
from hesape.handlers import Handler
from hesape.jobs import Job, prepared_row
from hesape.queue import Queue
from hesape.records import Claim, new_token
from hesape.testing.clock import Clock
from hesape.testing.fake_driver import FakeDriver, How, Settlement
from hesape.testing.running import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hesape.app import App
    from hesape.jobs import PreparedJob

_LEASE_US: Final = 3_600_000_000
_ANY: Final = object()
_SHOWN: Final = 10


@attrs.frozen(kw_only=True)
class Pushed:
    """A job that was pushed, and how."""

    job: Job
    delay_s: float
    tx: object


class FakeQueue(Queue):
    """A drop-in for `hesape.Queue`: grants are checked and jobs prepared as ever, nothing leaves the process.

    The store's clock stands still until `move` moves it. `tx=` is taken, and stores at once.
    """

    driver: FakeDriver

    def __init__(self, app: App | None = None, *, name: str = "default", clock: Clock | None = None) -> None:
        """Hold nothing. `app` has the handlers that `drain` runs; `clock` may be shared with other queues."""
        super().__init__(FakeDriver(), name=name)
        self.clock = clock or Clock()
        self.driver.clock = self.clock
        self._app = app
        self._pushed: list[Pushed] = []
        self._beside: Mapping[str, FakeQueue] = {name: self}

    def connection(self, name: str) -> FakeQueue:
        """The queue that stands in for another connection of the same App."""
        if name not in self._beside:
            message = f"no connection named {name!r} is faked here (faked: {', '.join(self._beside)})"
            raise ConfigError(message)
        return self._beside[name]

    def move(self, duration: float | timedelta) -> None:
        """Move the clock on by seconds or a timedelta."""
        self.clock.move(duration)
        self.driver.clock = self.clock  # whoever waits looks again

    def _store(self, prepared: list[PreparedJob], tx: object) -> list[Job]:
        jobs = super()._store(prepared, tx)
        delays = [prepared_row(handle).delay_us / 1_000_000 for handle in prepared]
        self._pushed += [Pushed(job=job, delay_s=delay, tx=tx) for job, delay in zip(jobs, delays, strict=True)]
        return jobs

    # What was pushed.

    def pushed(
        self,
        name: str | Handler[..., Any] | None = None,
        *,
        where: Callable[[Job], object] | None = None,
        payload: object = _ANY,
        queue: str | None = None,
        tenant: str | None = None,
        delay: float | timedelta | None = None,
        tx: object = _ANY,
    ) -> list[Job]:
        """The jobs that were pushed, in order: of this name or handler, and for which all that is given holds.

        `where` is asked of each job; `payload` is compared with the decoded payload, `delay` with what `later` was
        given, `tx` with the very connection that was lent.
        """
        wanted = name.name if isinstance(name, Handler) else name
        delay_s = None if delay is None else times.delay_us(delay) / 1_000_000
        return [
            one.job
            for one in self._pushed
            if wanted in {None, one.job.name}
            and queue in {None, one.job.queue}
            and tenant in {None, one.job.tenant}
            and delay_s in {None, one.delay_s}
            and (payload is _ANY or one.job.decode() == payload)
            and (tx is _ANY or one.tx is tx)
            and (where is None or where(one.job))
        ]

    def assert_pushed(self, name: str | Handler[..., Any], *, times: int | None = None, **how: Any) -> list[Job]:
        """At least one job was pushed that `pushed(name, **how)` finds, or exactly `times`; returns them."""
        __tracebackhide__ = True
        found = self.pushed(name, **how)
        if (times is None and not found) or (times is not None and len(found) != times):
            wanted = "at least one push" if times is None else f"{times} {'push' if times == 1 else 'pushes'}"
            message = f"expected {wanted} of {_described(name, how)}, found {len(found)}; {self._all_pushed()}"
            raise AssertionError(message)
        return found

    def assert_not_pushed(self, name: str | Handler[..., Any], **how: Any) -> None:
        """No job was pushed that `pushed(name, **how)` finds."""
        __tracebackhide__ = True
        self.assert_pushed(name, times=0, **how)

    def assert_nothing_pushed(self) -> None:
        """No job was pushed at all."""
        __tracebackhide__ = True
        if self._pushed:
            message = f"expected no push; {self._all_pushed()}"
            raise AssertionError(message)

    def _all_pushed(self) -> str:
        if not self._pushed:
            return "nothing was pushed"
        lines = [_shown(one) for one in self._pushed[:_SHOWN]]
        more = len(self._pushed) - len(lines)
        return "\n  ".join(["pushed were:", *lines, *([f"and {more} more"] if more else [])])

    # What became of it.

    def settlements(self, what: Job | str | Handler[..., Any] | None = None) -> list[Settlement]:
        """How deliveries ended, in order: of a job, a job's id, a name, a handler, or all."""
        if what is None:
            return list(self.driver.settlements)
        wanted = what.id if isinstance(what, Job) else what.name if isinstance(what, Handler) else what
        ids = {wanted, *(one.job.id for one in self._pushed if one.job.name == wanted)}
        return [settlement for settlement in self.driver.settlements if settlement.id in ids]

    def assert_settled(
        self,
        what: Job | str | Handler[..., Any],
        how: How,
        *,
        delay: float | timedelta | None = None,
        error: type[BaseException] | str | None = None,
    ) -> Settlement:
        """The last delivery of a job, or of the jobs of a name, ended by "delete", "release" or "fail"; returns it.

        `delay` is that of a release; `error` a class, or a part of the error's text.
        """
        __tracebackhide__ = True
        found = self.settlements(what)
        name = what.id if isinstance(what, Job) else what.name if isinstance(what, Handler) else what
        if not found:
            message = f"expected {name!r} to end by {how!r}, but no delivery of it has ended; did you drain the queue?"
            raise AssertionError(message)
        last = found[-1]
        wrong = []
        if last.how != how:
            wrong.append(f"to end by {how!r}, found {last.how!r}")
        if delay is not None and last.delay_s != times.delay_us(delay) / 1_000_000:
            wrong.append(f"to wait {delay!r}, found {last.delay_s:g} s")
        if error is not None and not _has_error(last, error):
            wrong.append(f"to end with the error {error!r}, found {(last.error or 'none').partition(chr(10))[0]!r}")
        if wrong:
            message = f"expected {name!r} {' and '.join(wrong)}"
            raise AssertionError(message)
        return last

    # Working.

    def drain(
        self, app: App | None = None, *, raise_errors: bool = True, move_clock: bool = False, most: int = 1_000
    ) -> list[Job]:
        """Run what is due, and what that pushes, here and now until nothing is; the deliveries in order.

        Each runs under its own grant, inside the middleware of the App, and is settled by the worker's rules and
        defaults. What a handler raises is raised, after its job was settled, or is passed over without `raise_errors`.
        With `move_clock` the clock moves on to what is due later, retries too. Timeouts aren't kept.
        """
        chosen = app or self._app
        if chosen is None:
            message = "draining needs handlers: FakeQueue(app), or drain(app)"
            raise UnsupportedError(message)
        ran: list[Job] = []
        while (job := self._next(move_clock)) is not None:
            if len(ran) >= most:
                self.driver.hand_back([job])
                message = f"{most} jobs were run and there are more, the next is {job.name!r}: do they push each other?"
                raise AssertionError(message)
            ran.append(job)
            error = run(chosen, job, self.clock())
            if error is not None and raise_errors:
                raise error
        return ran

    def _next(self, move_clock: bool) -> Job | None:  # noqa: FBT001 - drain's
        while True:
            queues = tuple(self.driver.queues())
            if not queues:
                return None
            claim = Claim(queues, 1, _LEASE_US, new_token())
            claimed = self.driver.reserve(claim)
            if jobs := self.receive(claimed, claim, monotonic()):
                return jobs[0]
            if not move_clock or claimed.next_due_us is None:
                return None
            self.move((claimed.next_due_us - claimed.now_us) / 1_000_000)


@contextmanager
def fake(app: App, connection: str | None = None) -> Iterator[FakeQueue]:
    """Let FakeQueues stand in for every connection of `app` inside the block, and yield one of them.

    It is that of `connection`, by default of the default one; its `connection(name)` leads to the others. They share
    one clock. Nothing is opened. A queue that the application got from its App before the block stays what it is.
    """
    clock, manager = Clock(), app.manager
    fakes: dict[str, Queue] = {}
    queues: dict[str, FakeQueue] = {}
    for name in app.configuration.names:
        queues[name] = fakes[name] = FakeQueue(app, name=name, clock=clock)
    for queue in queues.values():
        queue._beside = queues  # noqa: SLF001 - this module's own
    chosen = queues[app.configuration.choose(connection)]
    with manager.standing_in(fakes):
        yield chosen


def _has_error(settlement: Settlement, error: type[BaseException] | str) -> bool:
    text = settlement.error or ""
    if isinstance(error, str):
        return error in text
    return text.partition(":")[0].rpartition(".")[2] == error.__name__


def _described(name: str | Handler[..., Any], how: Mapping[str, Any]) -> str:
    wanted = name.name if isinstance(name, Handler) else name
    return repr(wanted) + "".join(f", {key}={value!r}" for key, value in how.items())


def _shown(one: Pushed) -> str:
    payload = json.dumps(one.job.decode(), ensure_ascii=False)
    later = f", {timedelta(seconds=one.delay_s)} later" if one.delay_s else ""
    return f"{one.job.name} {payload[:200]} on {one.job.queue} for {one.job.tenant}{later}"
