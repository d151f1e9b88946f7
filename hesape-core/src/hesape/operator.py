"""The operator's view: every tenant, no grant, and a log line for whoever changes something (G6, G7)."""

from __future__ import annotations

import getpass
import logging
from typing import TYPE_CHECKING

from hesape import names, retry, times
from hesape.events import QueuePaused, QueueResumed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from hesape.failed import FailedJob
    from hesape.queue import Queue
    from hesape.records import Counts, WorkerRow

logger = logging.getLogger(__name__)


class Operator:
    """What a person who runs the system may see and do, over every tenant of one connection."""

    def __init__(self, queue: Queue) -> None:
        """Look through `queue`."""
        self._queue = queue
        self._driver = queue.driver

    def counts(self, queue: str = "default") -> Counts:
        """As `Queue.counts`."""
        return self._queue.counts(queue)

    def oldest_pending(self, queue: str = "default") -> datetime | None:
        """As `Queue.oldest_pending`."""
        return self._queue.oldest_pending(queue)

    def queues(self) -> list[str]:
        """As `Queue.queues`."""
        return self._queue.queues()

    def paused(self) -> frozenset[str]:
        """The paused queues (L9)."""
        return retry.insist(lambda _: self._driver.paused())

    def workers(self) -> list[WorkerRow]:
        """The registered workers, what they hold and since when."""
        return retry.insist(lambda _: self._driver.workers())

    def failed(
        self, *, queue: str | None = None, limit: int = 50, before: FailedJob | str | None = None
    ) -> list[FailedJob]:
        """Failed jobs of every tenant, newest first, those that were tampered with among them."""
        return self._queue._failed.page(None, queue=queue, limit=limit, before=before)  # noqa: SLF001 - the queue's own view

    def find(self, id: str) -> FailedJob:  # noqa: A002 - it is the job's id
        """One failed job of any tenant."""
        return self._queue._failed.find(None, id)  # noqa: SLF001

    def retry(self, id: str | Sequence[str]) -> None:  # noqa: A002
        """Put failed jobs back; `TamperedError` for a record that was tampered with, and nothing changes."""
        self._log("retry", id)
        self._queue.tell_retried(self._queue._failed.retry(None, id), "")  # noqa: SLF001

    def forget(self, id: str | Sequence[str]) -> int:  # noqa: A002
        """Remove failed jobs; how many."""
        self._log("forget", id)
        return self._queue._failed.forget(None, id)  # noqa: SLF001

    def flush(self) -> int:
        """Remove every failed job; how many (F4)."""
        self._log("flush", "all failed jobs")
        return retry.insist(lambda _: self._driver.prune(None), once=True)

    def prune(self, older_than: float | timedelta) -> int:
        """Remove the jobs that failed longer than that ago; how many (F4)."""
        age_us = times.delay_us(older_than, "older_than")
        self._log("prune", older_than)
        return retry.insist(lambda _: self._driver.prune(age_us), once=True)

    def clear(self, queue: str) -> int:
        """Remove what is pending, delayed and reserved, never what failed; how many (C2)."""
        wanted = names.check_queue(queue)
        self._log("clear", wanted)
        return retry.insist(lambda _: self._driver.clear(wanted), once=True)

    def pause(self, queue: str) -> None:
        """Let nobody claim from `queue` until it is resumed (L9)."""
        wanted = names.check_queue(queue)
        self._log("pause", wanted)
        retry.insist(lambda _: self._driver.pause(wanted))
        self._tell(QueuePaused, wanted)

    def resume(self, queue: str) -> None:
        """Undo `pause`."""
        wanted = names.check_queue(queue)
        self._log("resume", wanted)
        retry.insist(lambda _: self._driver.resume(wanted))
        self._tell(QueueResumed, wanted)

    def _tell(self, event: type[QueuePaused | QueueResumed], queue: str) -> None:
        if self._queue.notify is not None:
            self._queue.notify(event(queue=queue, connection=self._queue.name))

    def _log(self, what: str, target: object) -> None:
        logger.info("operator %s: %s %s on connection %s", _who(), what, target, self._queue.name)


def _who() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
