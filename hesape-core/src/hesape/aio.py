"""The methods of a queue, awaitable: the same calls on a bounded set of threads of their own.

A call runs to its end though its `await` was cancelled: a push may have stored its job then, as after a lost answer.
What a cancelled pop claimed is handed back, also when the program ends meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from hesape.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Future
    from typing import Any

    from hesape.driver import Driver
    from hesape.queue import Queue

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 8


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="hesape-aio")


os.register_at_fork(after_in_child=_threads.cache_clear)  # a child has none of its parent's threads


def _awaitable(
    call: Callable[P, T], *, abandoned: Callable[[T], object] | None = None
) -> Callable[P, Coroutine[Any, Any, T]]:
    """The call as a coroutine; `abandoned` gets an answer for which nobody waits any more."""

    @functools.wraps(call)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
        running = _threads().submit(bound)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            if abandoned is not None:
                running.add_done_callback(functools.partial(_pass_on, abandoned))
            raise

    return run


def _pass_on(abandoned: Callable[[T], object], ended: Future[T]) -> None:
    """Called at the end of a call, perhaps on the event loop's thread, where nothing may wait for a store."""
    if ended.cancelled() or ended.exception() is not None:
        return
    try:
        _threads().submit(abandoned, ended.result())
    except RuntimeError:  # the program ends: nothing more is begun, but this thread is waited for
        abandoned(ended.result())


def _hand_back(driver: Driver, jobs: Sequence[Job]) -> None:
    try:
        driver.hand_back(jobs)
    except Exception:
        logger.exception("%d jobs of a cancelled pop couldn't be handed back: they wait for their lease", len(jobs))


class Aio:
    """A queue's methods as coroutines, and those with which a job settles itself."""

    def __init__(self, queue: Queue) -> None:
        """Wrap `queue`."""
        self.push = _awaitable(queue.push)
        self.push_on = _awaitable(queue.push_on)
        self.later = _awaitable(queue.later)
        self.bulk = _awaitable(queue.bulk)
        self.push_raw = _awaitable(queue.push_raw)
        self.pop = _awaitable(queue.pop, abandoned=functools.partial(_hand_back, queue.driver))
        self.counts = _awaitable(queue.counts)
        self.oldest_pending = _awaitable(queue.oldest_pending)
        self.queues = _awaitable(queue.queues)
        self.failed = _awaitable(queue.failed)
        self.find = _awaitable(queue.find)
        self.retry = _awaitable(queue.retry)
        self.forget = _awaitable(queue.forget)
        self.delete = _awaitable(Job.delete)
        self.release = _awaitable(Job.release)
        self.fail = _awaitable(Job.fail)
        self.extend = _awaitable(Job.extend)
