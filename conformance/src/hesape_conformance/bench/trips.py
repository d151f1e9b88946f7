"""How many round trips a job takes, counted on the wire; on a store without a server, how many write transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

import hesape
from hesape.config import ConnectionSettings
from hesape.driver import Fact
from hesape_conformance.bench import figures
from hesape_conformance.bench.ceiling import Ceiling, Script
from hesape_conformance.bench.figures import Place
from hesape_conformance.bench.stamps import Seen
from hesape_conformance.harness import Harness, NoHost
from hesape_conformance.relay import Relay


@attrs.frozen
class Counter:
    """What is counted, and how many there were so far."""

    unit: str
    so_far: Callable[[], int]

    def of(self, n: int, call: Callable[[], object]) -> float:
        """How many a call takes, for each of `n` jobs."""
        before = self.so_far()
        call()
        return (self.so_far() - before) / n


@contextmanager
def counting(harness: Harness, script: Script | None, namespace: str) -> Iterator[tuple[ConnectionSettings, Counter]]:
    """Settings whose connections are counted: through a relay, or as the script reads it from the store."""
    if Fact.NETWORKED not in harness.spec().facts:
        assert script is not None
        assert script.writes is not None
        settings, writes = harness.settings(namespace), script.writes
        yield settings, Counter("write transactions", lambda: writes(settings))
        return
    endpoint = harness.endpoint()
    assert endpoint is not None
    with Relay(endpoint) as relay:
        settings = harness.settings(namespace, endpoint=relay.endpoint)
        yield settings, Counter("round trips", lambda: relay.requests)


def ours(
    harness: Harness, place: Place, counter: Counter, pushes: int, jobs: int, count: Callable[[Seen], Seen]
) -> dict[str, float]:
    """A push, a job in bulk, and a drained job, the worker's start, heartbeats and end included."""
    grant = figures.GRANTS[figures.NOOP]
    driver = harness.spec().open(place.settings, NoHost())
    queue = hesape.Queue(driver)
    try:
        queue.push(grant, hesape.Job.new(grant, figures.NOOP, {}))  # connects
        wanted = [hesape.Job.new(grant, figures.NOOP, payload) for payload in figures.payloads(pushes)]
        found = {"push": counter.of(pushes, lambda: [queue.push(grant, job) for job in wanted])}
        place.queue.operator().clear("default")
        staged = figures.payloads(jobs)
        found["bulk"] = counter.of(jobs, lambda: figures.store(queue, staged))
        found["drain"] = counter.of(jobs, lambda: count(figures.work_off(place, jobs)))
    finally:
        driver.close()
    return found


def plain(opened: Ceiling, counter: Counter, pushes: int, jobs: int) -> dict[str, float]:
    """The same of the plain script."""
    wanted = figures.payloads(pushes)
    found = {"push": counter.of(pushes, lambda: opened.push(wanted))}
    opened.prepare()
    wanted = figures.payloads(jobs)
    found["bulk"] = counter.of(jobs, lambda: opened.bulk(wanted))
    found["drain"] = counter.of(jobs, opened.drain)
    return found
