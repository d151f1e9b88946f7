"""What only the memory store has: its address, sharing by name, forks, and lines that stay small."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from importlib.metadata import entry_points
from typing import Any

import pytest

from hesape.config import ConnectionSettings
from hesape.drivers.memory.driver import MemoryDriver
from hesape.drivers.memory.line import Line
from hesape.errors import ConfigError, UnsupportedError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue

GRANT = system_grant("act", "acme")
SEED = 20261201


def opened(url: str = "memory://", **options: object) -> Any:
    (point,) = [point for point in entry_points(group="hesape.drivers") if point.name == "memory"]
    settings = ConnectionSettings(name="m", driver="memory", url=url, options=options)
    return point.load().hesape_register_driver().open(settings, None)


def test_a_store_without_a_name_is_ones_own_and_a_named_one_is_shared() -> None:
    first, second, named, same = opened(), opened(""), opened("memory://shared"), opened("memory://shared")
    for driver in (first, named):
        Queue(driver).push(GRANT, Job.new(GRANT, "work"))
    assert [Queue(driver).counts().size for driver in (first, second, named, same)] == [1, 0, 1, 1]


def test_a_shared_store_goes_with_its_last_driver() -> None:
    driver = opened("memory://short")
    Queue(driver).push(GRANT, Job.new(GRANT, "work"))
    driver.close()
    assert Queue(opened("memory://short")).counts().size == 1
    del driver
    gc.collect()
    assert Queue(opened("memory://short")).counts().size == 0


@pytest.mark.parametrize(
    "url", ["memory:///path", "memory://name/path", "memory://user@name", "memory://name?a=1", "memory://[::1"]
)
def test_an_address_with_more_than_a_name_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="memory://NAME"):
        opened(url)


def test_an_option_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="pool, size"):
        opened(size=1, pool=2)


def test_a_transaction_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="memory"):
        Queue(opened()).push(GRANT, Job.new(GRANT, "work"), tx=object())


def test_a_forked_child_begins_with_a_store_of_its_own() -> None:
    """In a process of its own, which has one thread."""
    script = """
import os
from hesape.drivers.memory.driver import MemoryDriver
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.queue import Queue
grant = system_grant("act", "acme")
queues = [Queue(MemoryDriver()), Queue(MemoryDriver("shared"))]
for queue in queues:
    queue.push(grant, Job.new(grant, "work"))
if os.fork() == 0:
    assert [queue.pop() for queue in queues] == [[], []]
    queues[1].push(grant, Job.new(grant, "child"))
    assert Queue(MemoryDriver("shared")).counts().size == 1
    os._exit(0)
assert os.wait()[1] == 0
assert [queue.pop()[0].name for queue in queues] == ["work", "work"]
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (found.stderr, found.returncode) == ("", 0)


def test_jobs_that_came_and_went_leave_nothing_behind() -> None:
    driver = MemoryDriver()
    queue = Queue(driver)
    for _ in range(300):
        queue.bulk(GRANT, [Job.new(GRANT, "work", queue=f"q{number}") for number in range(10)])
        for job in queue.pop([f"q{number}" for number in range(10)], n=10):
            job.delete()
    store = driver._kept
    assert (store.jobs, store.lanes, store.held, store.entries) == ({}, {}, {}, {})


def test_a_line_keeps_its_order_and_stays_small_whatever_comes_and_goes() -> None:
    print("seed", SEED)  # noqa: T201 - shown when it fails
    chance = random.Random(SEED)
    line = Line()
    model: dict[str, tuple[int, int]] = {}
    for number in range(20_000):
        name = str(chance.randrange(50))
        if chance.random() < 0.6:
            place = (chance.randrange(100), number)
            line.put(name, place)
            model[name] = place
        else:
            line.leave(name)
            model.pop(name, None)
        assert len(line._heap) <= 130
    wanted = sorted(model, key=lambda name: model[name])
    assert len(line) == len(wanted) > 0
    assert [line.take() for _ in wanted] == wanted
    assert line.take() is None
