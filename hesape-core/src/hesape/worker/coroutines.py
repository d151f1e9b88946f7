"""Coroutine handlers: one event loop in a thread of its own, for all slots."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from hesape.context import current_job
from hesape.worker.forks import end_child

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 1.0
"""How long the loop's thread is waited for at the end."""


class Errand:
    """One coroutine on its way through the loop, and the slot's thread waiting for it."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], context: Context) -> None:
        """Run `coroutine` in `context`: what the slot's thread set holds inside it too."""
        self.coroutine = coroutine
        self.context = context
        self.reply: SimpleQueue[tuple[BaseException | None, object]] = SimpleQueue()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run it. What it raises is an outcome, also a SystemExit, which would end the loop."""
        pid, raised, value = os.getpid(), None, None
        try:
            value = await self.coroutine
        except BaseException as error:  # noqa: BLE001
            raised = error
        if os.getpid() != pid:
            end_child(current_job())
        self.reply.put((raised, value))

    def end(self, task: asyncio.Task[None]) -> None:
        """Answer for a task that was cancelled before its first step."""
        if task.cancelled():
            self.coroutine.close()
            self.reply.put((asyncio.CancelledError(), None))


class Coroutines:
    """The loop, started for the first coroutine. Several that arrive together are handed over in one hop."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._hopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = threading.Lock()
        self._closing = False

    def run(
        self, coroutine: Coroutine[Any, Any, object], on_start: Callable[[Callable[[], None] | None], None]
    ) -> object:
        """Run a coroutine to its end, from a slot's thread; return or raise what it does.

        `on_start` gets what cancels it, and `None` at its end.
        """
        errand = Errand(coroutine, copy_context())
        on_start(lambda: self._hop(lambda: self._cancel(errand)))
        self._hop(lambda: self._begin(errand))
        try:
            error, value = errand.reply.get()
        finally:
            on_start(None)
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Cancel what is left and end the loop's thread."""
        self._closing = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_PATIENCE_S)

    def _hop(self, step: Callable[[], None]) -> None:
        self._waiting.append(step)
        if not self._hopping:
            self._hopping = True
            (self._loop or self._start()).call_soon_threadsafe(self._arrive)

    def _arrive(self) -> None:
        self._hopping = False
        while self._waiting:
            self._waiting.popleft()()

    def _begin(self, errand: Errand) -> None:
        loop = asyncio.get_running_loop()
        errand.task = loop.create_task(errand.run(), context=errand.context)
        errand.task.add_done_callback(errand.end)

    def _cancel(self, errand: Errand) -> None:
        if errand.task is not None:
            errand.task.cancel()

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._work, args=(self._loop,), name="coroutines", daemon=True)
                self._thread.start()
        return self._loop

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while not self._closing:
            try:
                loop.run_forever()
            except BaseException:  # a task that a handler left behind ended the loop; others are still in it
                logger.exception("a task of a coroutine handler ended the event loop; it goes on")
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
