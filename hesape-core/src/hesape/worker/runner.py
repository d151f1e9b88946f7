"""One delivery in a slot: looked up, checked, run under its grant, and settled by the table of `outcome`."""

from __future__ import annotations

import os
from contextvars import copy_context
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hesape import context, times
from hesape.attributes import NO_ATTRIBUTES
from hesape.error_text import error_text
from hesape.errors import (
    ActionMismatchError,
    FailJob,
    HandlerUnknownError,
    JobTimeoutError,
    LeaseLostError,
)
from hesape.jobs import attached, grant_for
from hesape.worker.forks import end_child
from hesape.worker.options import Settle
from hesape.worker.outcome import Limits, Park, Standing, after_error, before_running, limits_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hesape.grants import Grant
    from hesape.handlers import Handler, Middleware, Registry
    from hesape.jobs import Delivery, Job
    from hesape.worker.coroutines import Coroutines
    from hesape.worker.options import WorkerOptions
    from hesape.worker.reports import Reports
    from hesape.worker.settler import Clock, Settler
    from hesape.worker.slots import Slot


_MOST_PLANS: Final = 10_000


class Plan(NamedTuple):
    """What a job's name leads to."""

    handler: Handler[..., Any]
    chain: tuple[Middleware, ...]
    """The worker's middleware, then the handler's; the first is the outermost."""
    limits: Limits
    """Those of a job that asks for nothing itself."""
    is_async: bool


class Runner:
    """Runs deliveries in the slots' threads."""

    def __init__(
        self,
        registry: Registry,
        middleware: Sequence[Middleware],
        options: WorkerOptions,
        *,
        reports: Reports,
        settler: Settler,
        clock: Clock,
        coroutines: Coroutines,
    ) -> None:
        """Look handlers up in `registry` and run them inside `middleware`."""
        self._registry = registry
        self._middleware = tuple(middleware)
        self._options = options
        self._reports = reports
        self._settler = settler
        self._clock = clock
        self._coroutines = coroutines
        self._plans: dict[str, Plan] = {}
        self._pid = os.getpid()

    def run(self, slot: Slot, job: Job) -> None:
        """Run one delivery and settle it. Should that fail, its lease isn't renewed, and its end redelivers."""
        delivery = attached(job)
        try:
            self._run(slot, job, delivery)
        except BaseException:
            self._settler.leave(job, delivery)
            raise

    def _run(self, slot: Slot, job: Job, delivery: Delivery) -> None:
        began = monotonic()
        self._reports.processing(job)
        try:
            plan = self._plan(job, delivery)
        except (HandlerUnknownError, ActionMismatchError) as wrong:
            self._park(job, wrong, monotonic() - began, ran=False)
            return
        limits = self._limits(job, plan)
        if job.attempts > 1 or delivery.lapses or limits.retry_until_us is not None:
            cause = before_running(self._standing(job.attempts, delivery, job.last_error), limits)
            if cause is not None:
                self._park(job, cause, monotonic() - began, ran=False)
                return
        slot.begin(job, delivery, began, limits)
        error = slot.thread.run(partial(copy_context().run, self._inside, slot, plan, job))
        if os.getpid() != self._pid:
            end_child(job)
        if slot.end():
            return
        duration_s = monotonic() - began
        if error is None and not delivery.kind:
            self._done(job, delivery, duration_s)
        else:
            self._conclude(slot, job, delivery, limits, _named(error, slot, limits), duration_s)

    def _inside(self, slot: Slot, plan: Plan, job: Job) -> None:
        """Run the handler inside its middleware, in a context of its own: nothing set here meets the next job."""
        grant = grant_for(job)
        context.enter(job, grant)
        if not plan.chain:
            self._call(slot, plan, job, grant)
            return
        step: Callable[[], object] = partial(self._call, slot, plan, job, grant)
        for middleware in reversed(plan.chain):
            step = partial(middleware, job, step)
        step()

    def _call(self, slot: Slot, plan: Plan, job: Job, grant: Grant) -> object:
        call = plan.handler.bind(job, grant)
        if not plan.is_async:
            return call()
        return self._coroutines.run(call(), slot.on_coroutine)

    # Looking up.

    def _plan(self, job: Job, delivery: Delivery) -> Plan:
        plan = self._plans.get(job.name)
        if plan is None:
            handler = self._registry.find(job.name)
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()  # one handler has as many names as there are methods after an @
            plan = self._plans[job.name] = self._new_plan(handler)
        if plan.handler.action != delivery.action:
            message = (
                f"the job's action is {delivery.action!r}, its handler {job.name!r} runs under {plan.handler.action!r}"
            )
            raise ActionMismatchError(message)
        return plan

    def _new_plan(self, handler: Handler[..., Any]) -> Plan:
        until = handler.attributes.retry_until
        limits = limits_of(handler.attributes, self._options, None if until is None else times.to_us(until))
        return Plan(handler, (*self._middleware, *handler.middleware), limits, handler.is_async)

    def _limits(self, job: Job, plan: Plan) -> Limits:
        own = job.attributes
        if own is NO_ATTRIBUTES or (own.retry_until is None and own == plan.handler.attributes):
            return plan.limits
        attributes = own.over(plan.handler.attributes)
        until = job.retry_until or attributes.retry_until
        return limits_of(attributes, self._options, None if until is None else times.to_us(until))

    def _standing(self, attempts: int, delivery: Delivery, last_error: str | None) -> Standing:
        now_us = self._clock.now_us()
        return Standing(attempts, delivery.exceptions_before, delivery.lapses, last_error, now_us)

    # Settling.

    def _done(self, job: Job, delivery: Delivery, duration_s: float) -> None:
        """A delivery's work is done: it is deleted together with others, or by itself before this returns."""
        if self._options.settle is Settle.BATCH:
            self._settler.finished(job, delivery, duration_s)
            return
        try:
            job.delete()
        except LeaseLostError:
            self._reports.lost(job, duration_s)
        except Exception as failure:  # noqa: BLE001 - a fault of the driver, too
            self._settler.leave(job, delivery)
            self._reports.unsettled(job, failure, duration_s)
        else:
            report = self._reports.marked if job.has_failed else self._reports.processed
            report(job, duration_s)

    def _conclude(
        self,
        slot: Slot,
        job: Job,
        delivery: Delivery,
        limits: Limits,
        error: BaseException | None,
        duration_s: float,
    ) -> None:
        if slot.timed_out:
            self._reports.timed_out(job, limits.timeout_s)
        if job.has_failed and not delivery.kind:  # S6
            self._done(job, delivery, duration_s)
        elif error is None:
            if delivery.provisional:
                self._settler.leave(job, delivery)
            if delivery.kind == "fail":
                self._reports.marked(job, duration_s)
            else:
                self._reports.settled(job, delivery.kind, None, duration_s)
        elif delivery.kind and not delivery.provisional:  # S7
            self._reports.settled(job, delivery.kind, error, duration_s)
        else:
            self.fail(slot, job, delivery, limits, error, duration_s)

    def fail(
        self, slot: Slot, job: Job, delivery: Delivery, limits: Limits, error: BaseException, duration_s: float
    ) -> None:
        """Count a failure and park or release the job."""
        standing = self._standing(slot.attempts, delivery, None)
        decision = after_error(standing, limits, error, timed_out=slot.timed_out)
        job.exceptions = delivery.exceptions_before + 1
        if isinstance(decision, Park):
            self._park(job, error, duration_s, ran=True)
            return
        job.last_error = error_text(error)
        try:
            if delivery.provisional:  # S4: fenced, and a lost lease means that it was committed
                self._settler.driver.release_job(job, decision.delay_s)
            else:
                job.release(decision.delay_s)
        except LeaseLostError:
            self._lost(job, delivery, error, duration_s)
        except Exception as failure:  # noqa: BLE001 - a fault of the driver, too
            self._settler.leave(job, delivery)
            self._reports.unsettled(job, failure, duration_s)
        else:
            self._reports.released(job, error, decision.delay_s, duration_s)

    def _park(self, job: Job, cause: BaseException, duration_s: float, *, ran: bool) -> None:
        delivery = attached(job)
        try:
            if delivery.provisional:
                self._settler.driver.fail_job(job, cause)
            else:
                job.fail(cause)
        except LeaseLostError:
            self._lost(job, delivery, cause, duration_s)
        except Exception as failure:  # noqa: BLE001 - a fault of the driver, too
            self._settler.leave(job, delivery)
            self._reports.unsettled(job, failure, duration_s)
        else:
            self._reports.parked(job, cause, duration_s, ran=ran)

    def _lost(self, job: Job, delivery: Delivery, error: BaseException, duration_s: float) -> None:
        if delivery.provisional:
            self._reports.settled(job, delivery.kind, error, duration_s)
        else:
            self._reports.lost(job, duration_s)


def _named(error: BaseException | None, slot: Slot, limits: Limits) -> BaseException | None:
    """The error as it is recorded: what an interruption led to says how long the handler was allowed to run."""
    if error is None or isinstance(error, FailJob) or not slot.timed_out:
        return error
    message = f"the handler ran longer than its timeout of {limits.timeout_s:g} s"
    if isinstance(error, JobTimeoutError):
        error.args = (message,)
        return error
    timeout = JobTimeoutError(message)
    timeout.__cause__ = error
    return timeout
