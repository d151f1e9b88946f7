"""A worker on a trial's store, in this process: handlers by name, run until the queues are empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hesape.attributes import Attributes
from hesape.handlers import Handler, Registry
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape_conformance.trial import Trial


class Workshop:
    """Handlers for the jobs of a trial."""

    def __init__(self, trial: Trial) -> None:
        """Begin without any."""
        self._trial = trial
        self._registry = Registry()
        self._worker: Worker | None = None

    def handler(
        self, name: str, function: Callable[..., Any], *, action: str | None = None, **attributes: Any
    ) -> Handler[..., Any]:
        """Register a function for a job name, under an action that is by default the name."""
        wanted = Attributes(**attributes)
        handler = Handler(function, name, action or name, wanted, connect=lambda _: self._trial.queue)
        self._registry.add(handler)
        return handler

    def work(self, **options: Any) -> None:
        """Run a worker until nothing is due and nothing reserved, and no longer than twenty seconds."""
        settings: dict[str, Any] = {"concurrency": 2, "stop_when_empty": True, "max_time_s": 20.0, "sleep_s": 0.05}
        self._worker = Worker(self._trial.queue, self._registry, WorkerOptions(**{**settings, **options}))
        self._worker.run()

    def stop(self) -> None:
        """Let the worker stop, as from a handler."""
        if self._worker is not None:
            self._worker.stop()
