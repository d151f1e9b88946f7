"""Values that answer for themselves, change while they are looked at, or lie beyond every number (P1, P5, T3)."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import hesape
from hesape import Job, Queue, errors, system_grant, times
from hesape.driver import MAX_BULK_JOBS
from hesape.error_text import error_text

GRANT = system_grant("act", "acme")


class Short(str):
    """A text that lies about its length and its letters."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0

    def isprintable(self) -> bool:
        return True


class Anything(int):
    """A number that equals every other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


class Small(bytes):
    """Bytes that lie about their length."""

    __slots__ = ()

    def __len__(self) -> int:
        return 1


@pytest.fixture
def queue() -> Iterator[Queue]:
    with hesape.connect("memory://") as queue:
        yield queue


def job(**fields: Any) -> Job:
    return Job.new(GRANT, "act", {}, **fields)


@pytest.mark.parametrize("field", ["name", "display_name"])
def test_a_text_is_measured_by_its_letters_and_not_by_its_own_answers(queue: Queue, field: str) -> None:
    edited = job()
    setattr(edited, field, Short("\0" * 1000))
    with pytest.raises(errors.HesapeError):
        queue.push(GRANT, edited)
    assert queue.counts().size == 0


@pytest.mark.parametrize("number", [2**15, 2**40, 2**70, -(2**15) - 1])
def test_a_priority_is_measured_by_its_value_and_not_by_its_own_answers(number: int) -> None:
    with pytest.raises(errors.PriorityInvalidError):
        job(priority=Anything(number))


def test_what_is_stored_is_the_payload_that_was_checked_though_the_job_changes_meanwhile(queue: Queue) -> None:
    for when in range(1, 8):
        looks = itertools.count(1)

        class Changing(Job):
            def __getattribute__(self, name: str) -> Any:
                if name == "payload" and next(looks) >= when:  # noqa: B023 - used within its round
                    return b"not JSON" * 10_000
                return super().__getattribute__(name)

        changing = Changing.new(GRANT, "act", {})
        try:
            stored = queue.push(GRANT, changing)
        except errors.HesapeError:
            continue
        assert stored.payload == b"{}"
        assert [popped.payload for popped in queue.pop()] == [b"{}"]


def test_the_mark_of_a_checked_payload_covers_neither_another_type_nor_size(queue: Queue) -> None:
    edited = job()
    edited.payload = edited._checked = Small(b"x" * 100_000)
    with pytest.raises(errors.HesapeError):
        queue.push(GRANT, edited)


@pytest.mark.parametrize(
    "call", [lambda q, d: q.later(GRANT, d, job()), lambda q, d: q.pop(lease=d)], ids=["delay", "lease"]
)
@pytest.mark.parametrize(
    "number", [10**400, 10**5000, float("inf"), float("nan")], ids=["400 digits", "5000 digits", "inf", "nan"]
)
def test_a_duration_beyond_every_number_is_refused(
    queue: Queue, call: Callable[[Queue, Any], object], number: float
) -> None:
    with pytest.raises(errors.TimeInvalidError):
        call(queue, number)


@pytest.mark.parametrize("number", [-(10**400), -1e308, -1e18])
def test_a_negative_delay_means_now_however_large_it_is(queue: Queue, number: float) -> None:
    queue.later(GRANT, number, job())
    assert queue.counts().pending == 1


@pytest.mark.parametrize("us", [2**63 - 1, -(2**63), 10**40])
def test_a_forged_moment_reads_as_the_nearest_end_of_time(us: int) -> None:
    end = datetime.max.replace(tzinfo=UTC) if us > 0 else datetime.min.replace(tzinfo=UTC)
    assert times.from_us(us) == end


def test_a_cursor_beyond_every_number_is_refused(queue: Queue) -> None:
    grant = system_grant("hesape.failed.read", "acme")
    for digits in (19, 5000):
        with pytest.raises(errors.ArgumentInvalidError):
            queue.failed(grant, before=f"{'9' * digits}:{job().id}")


def test_an_endless_bulk_is_refused(queue: Queue) -> None:
    made = 0

    def endless() -> Iterator[Job]:
        nonlocal made
        while True:
            made += 1
            yield job()

    with pytest.raises(errors.BulkTooLargeError):
        queue.bulk(GRANT, endless())
    assert made <= MAX_BULK_JOBS + 1


def test_a_key_of_a_lock_may_hold_any_text(queue: Queue) -> None:
    assert queue.lock("\ud800", 60).take()
    assert not queue.lock("\ud800", 60).take()


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_an_exception_that_cant_say_what_it_is_gets_a_text_all_the_same(raised: type[BaseException]) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise raised

    assert error_text(Mute()).startswith(f"Mute: <its message could not be read: {raised.__name__}>")


def test_a_forked_child_awaits_with_threads_of_its_own() -> None:
    async def push() -> int:
        with hesape.connect("memory://") as queue:
            await queue.aio.push(GRANT, job())
            return queue.counts().size

    assert asyncio.run(push()) == 1
    child = os.fork()
    if not child:
        signal.alarm(10)  # a child that hangs is ended
        os._exit(0 if asyncio.run(push()) == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
