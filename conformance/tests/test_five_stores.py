"""The same 500 jobs through every store: every field of every pop, release, retry and count is the same (N4)."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from hesape import Attributes, Job, Queue, system_grant
from hesape.jobs import attached
from hesape.times import EPOCH
from hesape_conformance.harness import Harness
from hesape_conformance.installed import find_harness, names

TENANTS = ("acme", "umbrella", "initech")
QUEUES = ("high", "default", "Reports", "reports")
PAYLOADS: tuple[object, ...] = (None, [], {"a": 1.0}, "😀\0é", 2**53 + 1, [None, True, {"x": []}], "x" * 2_000)
SEED = 20260101
STORES = ("mysql", "postgres", "redis", "sqlite")
"""Beside memory, whose story is the reference."""


def jobs(source: random.Random) -> list[tuple[Job, float]]:
    """The jobs, in push order, each with its delay: far in the future or none."""
    made = []
    for number in range(500):
        tenant = source.choice(TENANTS)
        job = Job.new(
            system_grant("story.run", tenant),
            f"story.{number % 7}",
            source.choice(PAYLOADS),
            queue=source.choice(QUEUES),
            priority=source.choice((None, 0, 5, 5, 32_767, -32_768)),
            display_name=source.choice(("", "Ein Märchen")),
            attributes=Attributes(tries=number % 3, backoff=(1, 2.5)) if number % 2 else Attributes(),
            id=f"{number:08x}-0000-7000-8000-{source.getrandbits(48):012x}",
        )
        made.append((job, 3_600.0 if source.random() < 0.1 else 0.0))
    return made


def fields(job: Job) -> tuple[Any, ...]:
    """All that a popped job shows, but for the moments that a store's clock gave it."""
    delivery = attached(job)
    return (
        job.id, job.name, job.tenant, job.payload, job.queue, job.display_name, job.authorized_by, job.action,
        job.priority, job.attributes, job.attempts, job.exceptions, job.last_error, job.retry_until, job.backoff(),
        job.connection_name, delivery.lapses, delivery.retry_shift_us > 0,
    )  # fmt: skip


def tell(queue: Queue) -> Iterator[Any]:
    """Everything that happens to the jobs, as values that must not depend on the store."""
    source = random.Random(SEED)
    for job, delay in jobs(source):
        grant = system_grant("story.run", job.tenant)
        stored = queue.later(grant, delay, job) if delay else queue.push(grant, job)
        yield "stored", stored.id, stored.queue, stored.priority
    yield from counted(queue)
    for round_ in range(40):
        popped = queue.pop(source.sample(QUEUES, 4), source.choice((1, 3, 10, 40)), lease=600)
        for job in popped:
            yield "popped", round_, fields(job)
            yield "settled", settle(queue, job, source)
        if round_ % 10 == 9:
            yield from counted(queue)
            yield from repaired(queue, source)
    yield from counted(queue)
    for name in QUEUES:
        yield "cleared", name, queue.operator().clear(name)
    yield "flushed", queue.operator().flush()
    yield from counted(queue)


def settle(queue: Queue, job: Job, source: random.Random) -> str:
    """End a delivery in one of the ways that there are."""
    way = source.choice(("delete", "delete", "release", "unspent", "error", "fail", "hand back", "keep"))
    if way == "delete":
        job.delete()
    elif way == "release":
        job.release(0)
    elif way == "unspent":
        job.release(7_200, spent=False)
    elif way == "error":
        job.exceptions += 1
        job.last_error = "ValueError: é😀"
        job.release(-1)
    elif way == "fail":
        job.exceptions += 1
        job.fail("RuntimeError: no")
    elif way == "hand back":
        queue.driver.hand_back([job])
    return f"{way} {job.is_released} {job.is_deleted} {job.has_failed}"


def counted(queue: Queue) -> Iterator[Any]:
    """The counts of every queue."""
    yield "queues", queue.queues()
    for name in QUEUES:
        yield "counts", name, queue.counts(name), queue.oldest_pending(name) is None


def repaired(queue: Queue, source: random.Random) -> Iterator[Any]:
    """The failed list of each tenant, some of it retried and some forgotten."""
    for tenant in TENANTS:
        found = queue.failed(system_grant("hesape.failed.read", tenant), limit=1_000)
        for one in sorted(found, key=lambda one: one.id):
            yield "failed", tenant, attrs.evolve(one, pushed_at=EPOCH, failed_at=EPOCH)
        ids = sorted(one.id for one in found)
        some = source.sample(ids, len(ids) // 3)
        queue.retry(system_grant("hesape.failed.retry", tenant), some[::2])
        yield "retried", sorted(some[::2])
        yield "forgot", queue.forget(system_grant("hesape.failed.forget", tenant), some[1::2])


@pytest.fixture(scope="module")
def reference() -> list[Any]:
    return told(find_harness("memory")())


def told(harness: Harness) -> list[Any]:
    harness.start()
    try:
        driver = harness.open("story")
        driver.migrate()
        try:
            return list(tell(Queue(driver, name="story")))
        finally:
            driver.close()
            harness.drop("story")
    finally:
        harness.stop()


def test_the_story_has_every_kind_of_event(reference: list[Any]) -> None:
    settled = {event[1].partition(" ")[0] for event in reference if event[0] == "settled"}
    assert settled == {"delete", "release", "unspent", "error", "fail", "hand", "keep"}
    assert sum(event[0] == "popped" for event in reference) > 250
    assert any(event[0] == "popped" and event[2][10] > 1 for event in reference)
    assert any(event[0] == "retried" and event[1] for event in reference)


@pytest.mark.parametrize("store", STORES)
def test_every_store_tells_the_same_story(store: str, reference: list[Any]) -> None:
    print(f"seed {SEED}")  # noqa: T201 - a random test prints its seed
    story = told(find_harness(store)())
    for number, (event, expected) in enumerate(zip(story, reference, strict=False)):
        assert event == expected, f"event {number} on {store}"
    assert len(story) == len(reference)


def test_all_five_are_here() -> None:
    assert {"memory", *STORES} <= set(names())
