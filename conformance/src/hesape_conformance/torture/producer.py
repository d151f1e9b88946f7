"""A producer: `python -m hesape_conformance.torture.producer SEED`, in the folder of the torture's hesape.toml.

It pushes, for later and in bulks, under grants of several tenants; notes each call before and after it; and repeats
what had no answer under the same id, as an application does (I2). TERM lets it finish what it is about.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hesape
from hesape.errors import HesapeError, OutcomeUnknownError, StoreUnavailableError
from hesape_conformance.history import Recorder, content_of
from hesape_conformance.torture.names import COROUTINE, FOLDER_VARIABLE, QUEUES, THREAD

if TYPE_CHECKING:
    from collections.abc import Callable

ENOUGH: Final = 120
"""Jobs waiting in a queue, above which nothing is pushed for a while."""
_LOOK_S: Final = 0.3
_PAUSE_S: Final = 0.02
_AGAIN_S: Final = 0.2
_LONG_PART: Final = 0.015
_LONG_S: Final = 5.5
"""Some jobs last longer than the shortest lease: it must be renewed."""
_TENANTS: Final = ("acme", "globex", "initech")
_MODES: Final = ("sleep",) * 10 + ("busy", "busy", "raise", "release", "delete", "park")
_TEXTS: Final = ("", "plain", "\u00e4\u00f6\u00fc", "\U0001f980 \u2603", "\u0000\u001f", "x" * 2_000)


class Producer:
    """Pushes until it is told to stop."""

    def __init__(self, seed: int, queue: hesape.Queue, recorder: Recorder) -> None:
        """Push to `queue` what `seed` leads to."""
        self._random = random.Random(seed)
        self._queue = queue
        self._recorder = recorder
        self._calls = itertools.count()
        self._look_at = 0.0
        self.stopped = False

    def run(self) -> None:
        """Push, and rest while enough waits."""
        while not self.stopped:
            if time.monotonic() >= self._look_at and self._enough():
                time.sleep(_LOOK_S)
                continue
            self._push()
            time.sleep(_PAUSE_S * self._random.random())

    def _enough(self) -> bool:
        try:
            waiting = max(self._queue.driver.counts(queue).pending for queue in QUEUES)
        except HesapeError:
            return True
        self._look_at = time.monotonic() + _LOOK_S
        return waiting > ENOUGH

    def _push(self) -> None:
        kind = self._random.random()
        if kind < 0.6:
            grant, job = self._job()
            self._call([job], 0.0, lambda: self._queue.push(grant, job))
        elif kind < 0.8:
            grant, job = self._job()
            delay_s = self._random.uniform(0.2, 2.0)
            self._call([job], delay_s, lambda: self._queue.later(grant, delay_s, job))
        else:
            grant, first = self._job()
            jobs = [first, *(self._job(grant)[1] for _ in range(self._random.randint(1, 12)))]
            self._call(jobs, 0.0, lambda: self._queue.bulk(grant, jobs))

    def _job(self, grant: hesape.Grant | None = None) -> tuple[hesape.Grant, hesape.Job]:
        name = grant.action if grant else self._random.choice((THREAD, THREAD, COROUTINE))
        grant = grant or hesape.system_grant(name, self._random.choice(_TENANTS))
        for_s = min(self._random.expovariate(1 / 0.12), 1.0)
        if self._random.random() < _LONG_PART:
            for_s = _LONG_S
        mode = self._random.choice(_MODES)
        payload = {"mode": mode, "for_s": min(for_s, 0.1) if mode == "busy" else for_s}
        payload["filling"] = self._random.choice(_TEXTS)
        queue, priority = self._random.choice(QUEUES), self._random.choice((100, 100, 10, -5))
        return grant, hesape.Job.new(grant, name, payload, queue=queue, priority=priority)

    def _call(self, jobs: list[hesape.Job], delay_s: float, call: Callable[[], object]) -> None:
        """Push until there is an answer that says: stored, or surely not. Any other error ends the producer."""
        outcome, contents = "unknown", {job.id: content_of(job) for job in jobs}
        while outcome == "unknown":
            number = f"{os.getpid()}:{next(self._calls)}"
            self._recorder.note("push", call=number, jobs=contents, delay_s=delay_s)
            try:
                call()
                outcome = "ok"
            except OutcomeUnknownError:
                outcome = "unknown"
            except StoreUnavailableError:
                outcome = "refused"
            self._recorder.note("pushed", call=number, outcome=outcome)
            if outcome != "ok":
                time.sleep(_AGAIN_S)
                if self.stopped:
                    return


def main(seed: int) -> None:
    """Open the connection that the configuration names, and push."""
    recorder = Recorder(Path(os.environ[FOLDER_VARIABLE]), "producer")
    app = hesape.App()
    producer = Producer(seed, app.connection(), recorder)

    def stop(*_: object) -> None:
        producer.stopped = True

    signal.signal(signal.SIGTERM, stop)
    producer.run()
    app.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
