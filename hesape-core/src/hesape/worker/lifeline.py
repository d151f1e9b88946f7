"""Keeps a worker process's leases alive: through its supervisor, and by itself while that is silent."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from hesape import times
from hesape.errors import StoreError
from hesape.worker.outage import Outage
from hesape.worker.restart import RestartSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.driver import Driver
    from hesape.worker.control import Control
    from hesape.worker.options import WorkerOptions
    from hesape.worker.settler import Settler
    from hesape.worker.slots import Crew

logger = logging.getLogger(__name__)

TTL_S: Final = 8.0
"""A worker of which nothing was heard for this long counts as dead."""
SILENT_S: Final = 2.5
"""A worker of which the store heard nothing for this long may count as dead soon, and claims nothing."""


def interval_s(lease_s: float) -> float:
    """How often to beat: about every second, and well inside half of a lease."""
    return min(1.0, lease_s / 6)


def silent_s(lease_s: float) -> float:
    """A supervisor of which nothing was heard for this long is stopped or stuck, and the process beats itself.

    A beat leaves half of a lease at least: this, and the time between two looks, must be over before that is.
    """
    return min(SILENT_S, lease_s / 4)


class Lifeline:
    """A thread that listens to the supervisor and tells the worker what it hears."""

    def __init__(
        self,
        driver: Driver,
        worker: str,
        options: WorkerOptions,
        *,
        crew: Crew,
        settler: Settler,
        control: Control | None,
        on_paused: Callable[[frozenset[str]], None],
        on_restart: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        """Keep `worker` alive; without `control` nobody else does."""
        self._driver = driver
        self._worker = worker
        self._lease_s = options.lease_s
        self._interval_s = interval_s(options.lease_s)
        self._crew = crew
        self._settler = settler
        self._control = control
        self._on_paused = on_paused
        self._on_restart = on_restart
        self._on_gone = on_gone
        self._outage = Outage(f"worker {worker}: beat")
        self._restart = RestartSignal(driver)
        self._heard_at = self._renewed_at = monotonic()
        self._alone = control is None
        """Nobody else beats for the worker."""
        self._told: tuple[str, ...] = ()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lifeline", daemon=True)

    def start(self) -> None:
        """Register the worker, unless its supervisor has, and begin."""
        if self._control is None:
            self._restart.given()
            self._beat()
        self._thread.start()

    @property
    def vouched(self) -> bool:
        """Whether the store learned a moment ago that the worker lives.

        One that was frozen or cut off may count as dead by now: what it claimed would be taken from it at once.
        """
        return monotonic() - self._renewed_at <= SILENT_S

    def close(self) -> None:
        """End it; a beat that is under way comes first, so that none follows the worker's end."""
        self._over.set()
        if self._alone:
            self._thread.join(self._interval_s * 2)

    def _work(self) -> None:
        while not self._over.is_set():
            try:
                self._listen()
                if self._alone or monotonic() - self._heard_at > silent_s(self._lease_s):
                    self._beat()
                if self._alone:
                    self._over.wait(self._interval_s)
            except Exception:  # whatever it is, the next beat comes
                logger.exception("worker %s: the lifeline failed", self._worker)
                self._over.wait(self._interval_s)

    def _listen(self) -> None:
        if self._control is None:
            if self._restart.given():
                self._on_restart()
            return
        but = self._settler.but
        if but != self._told:
            self._control.send(but=but)
            self._told = but
        lines = self._control.receive(self._interval_s / 2)
        if lines is None:
            self._alone = True  # the beat that follows at once takes over what the dead held
            self._on_gone()
            return
        for line in lines:
            self._heard_at = monotonic()
            self._hear(line)

    def _hear(self, line: dict[str, Any]) -> None:
        if line.get("renewed"):
            self._outage.answered()
            self._renewed(line["renewed"])
        if "paused" in line:
            self._on_paused(frozenset(line["paused"]))
        if line.get("restart"):
            self._on_restart()

    def _beat(self) -> None:
        if monotonic() < self._outage.until:
            return
        began = monotonic()
        ttl_us, lease_us = times.delay_us(TTL_S), times.delay_us(self._lease_s)
        try:
            paused = self._driver.beat(self._worker, ttl_us, lease_us, self._settler.but)
            self._driver.rescue()
        except StoreError as error:
            self._outage.failed(error)
            return
        except Exception:
            if self._alone:
                raise
            logger.debug("worker %s: its silent supervisor still holds its registration", self._worker, exc_info=True)
            return
        self._outage.answered()
        self._renewed(began)
        self._on_paused(paused)

    def _renewed(self, at: float) -> None:
        """Every lease held at the monotonic time `at` lasts half a lease from then at least (S5)."""
        late_s = at - self._renewed_at
        if late_s > self._lease_s / 2 and self._crew.held:
            said = (self._worker, self._lease_s, late_s)
            logger.warning(
                "worker %s: its leases of %g s weren't renewed for %.1f s: jobs may run elsewhere too", *said
            )
        vouched, self._renewed_at = self.vouched, at
        if not vouched:
            self._crew.bell.ring()
        until = at + self._lease_s / 2
        for slot in self._crew.slots:
            if (delivery := slot.delivery) is not None:
                delivery.expires = max(delivery.expires, until)
