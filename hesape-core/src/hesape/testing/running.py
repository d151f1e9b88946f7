"""Running due jobs here and now, each settled by the worker's own rules."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from hesape import times
from hesape.error_text import error_text
from hesape.errors import ActionMismatchError, HandlerUnknownError
from hesape.jobs import attached
from hesape.worker.options import WorkerOptions
from hesape.worker.outcome import Limits, Park, Standing, after_error, before_running, limits_of

if TYPE_CHECKING:
    from hesape.app import App
    from hesape.jobs import Job

_OPTIONS = WorkerOptions()


def run(app: App, job: Job, now_us: int) -> BaseException | None:
    """Run one delivery inside its middleware and settle it as a worker does; what its handler raised."""
    try:
        limits = _limits(app, job)
    except (HandlerUnknownError, ActionMismatchError) as wrong:
        job.fail(wrong)
        return wrong
    standing = _standing(job, now_us)
    cause = before_running(standing, limits)
    if cause is not None:
        job.fail(cause)
        return cause
    error = _call(app, job)
    if job.is_settled:
        return error
    if error is None or job.has_failed:
        job.delete()
        return error
    decision = after_error(standing, limits, error, timed_out=False)
    job.exceptions = standing.exceptions + 1
    if isinstance(decision, Park):
        job.fail(error)
    else:
        job.last_error = error_text(error)
        job.release(decision.delay_s)
    return error


def _call(app: App, job: Job) -> BaseException | None:
    """Run the handler, in a thread when this one runs an event loop: a coroutine handler needs one of its own."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            app.run(job)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the job's outcome
            raised.append(error)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        call()
    else:
        thread = threading.Thread(target=call, name="hesape-drain")
        thread.start()
        thread.join()
    if raised and not isinstance(raised[0], Exception):
        raise raised[0]
    return raised[0] if raised else None


def _limits(app: App, job: Job) -> Limits:
    handler = app.handlers.find(job.name)
    action = attached(job).action
    if action != handler.action:  # G9
        message = f"the job's action is {action!r}, its handler {job.name!r} runs under {handler.action!r}"
        raise ActionMismatchError(message)
    attributes = job.attributes.over(handler.attributes)
    until = job.retry_until or attributes.retry_until
    return limits_of(attributes, _OPTIONS, None if until is None else times.to_us(until))


def _standing(job: Job, now_us: int) -> Standing:
    delivery = attached(job)
    return Standing(job.attempts, delivery.exceptions_before, delivery.lapses, job.last_error, now_us)
