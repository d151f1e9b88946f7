"""FakeQueue: a queue that is checked as the real one, with assertions and a clock in the test's hands."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import hesape
from hesape import Attributes, Job, Queue, system_grant
from hesape.config import Configuration
from hesape.errors import ConfigError, ForgedError, PayloadTooLargeError, TimeInvalidError, UnsupportedError
from hesape.middleware import rate_limited
from hesape.testing import Clock, FakeQueue, fake

GRANT = system_grant("mail", "acme")


def job(**payload: object) -> Job:
    return Job.new(GRANT, "mail", payload)


class Place:
    """An application with three handlers."""

    def __init__(self) -> None:
        tables: dict[str, dict[str, Any]] = {
            "main": {"url": "sqlite:////nowhere/at/all.db"},
            "orders": {"driver": "postgres", "url": "postgresql://nobody@nowhere.invalid/x"},
        }
        self.app = hesape.App(Configuration(source="test", default="main", tables=tables))
        self.ran: list[object] = []

        @self.app.handler("mail", tries=3, backoff=(10, 20))
        def mail(job: Job, number: int) -> None:
            self.ran.append(number)
            if number < 0:
                raise ValueError(number)

        @self.app.handler("ask")
        async def ask(job: Job) -> None:
            await asyncio.sleep(0)
            self.ran.append(job.tenant)

        self.mail, self.ask = mail, ask


@pytest.fixture
def place() -> Place:
    return Place()


# Checked as the real one.


def test_it_is_a_queue_and_returns_what_it_stored() -> None:
    queue = FakeQueue()
    stored = queue.push(GRANT, job(number=1))
    assert isinstance(queue, Queue)
    assert (stored.queue, stored.tenant, stored.priority) == ("default", "acme", 100)
    assert queue.counts().pending == 1


def test_what_a_real_queue_refuses_is_refused_and_counts_as_no_push() -> None:
    queue = FakeQueue()
    forged, big = job(), job()
    forged.tenant = "globex"
    big.payload = b'"' + b"x" * 40_000 + b'"'
    with pytest.raises(ForgedError):
        queue.push(GRANT, forged)
    with pytest.raises(PayloadTooLargeError):
        queue.push(GRANT, big)
    with pytest.raises(ForgedError):
        queue.driver.store([job()])  # type: ignore[list-item]
    queue.assert_nothing_pushed()


def test_the_same_id_with_other_content_is_refused_as_ever() -> None:
    queue = FakeQueue()
    first = queue.push(GRANT, job(number=1))
    with pytest.raises(hesape.DuplicateJobError):
        queue.push(GRANT, Job.new(GRANT, "mail", {"number": 2}, id=first.id))
    queue.assert_pushed("mail", times=1)


# What was pushed.


def test_pushes_are_found_by_all_that_is_known_of_them(place: Place) -> None:
    queue = FakeQueue()
    connection = object()
    queue.push(GRANT, job(number=1))
    queue.push_on(GRANT, "high", job(number=2))
    queue.later(GRANT, timedelta(minutes=5), job(number=3))
    queue.push(GRANT, job(number=4), tx=connection)
    queue.bulk(GRANT, [job(number=5), job(number=6)])
    other = system_grant("mail", "globex")
    queue.push_raw(other, "mail", b'{"number": 7}')

    def numbers(**how: Any) -> list[int]:
        return [one.decode()["number"] for one in queue.assert_pushed(place.mail, **how)]

    assert numbers() == [1, 2, 3, 4, 5, 6, 7]
    assert numbers(queue="high") == [2]
    assert numbers(delay=300) == [3]
    assert numbers(delay=0, queue="default", times=5) == [1, 4, 5, 6, 7]
    assert numbers(tx=connection) == [4]
    assert numbers(tenant="globex") == [7]
    assert numbers(payload={"number": 5}) == [5]
    assert numbers(where=lambda one: one.decode()["number"] > 5) == [6, 7]
    assert [one.decode()["number"] for one in queue.pushed(delay=timedelta(minutes=5))] == [3]
    assert queue.pushed("other") == []
    queue.assert_not_pushed("other")
    queue.assert_not_pushed("mail", payload={"number": 8})


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({}, "expected at least one push of 'fax', found 0; pushed were:\n  mail {\"number\": 1} on default for acme"),
        ({"times": 1}, "expected 1 push of 'fax', found 0"),
        ({"times": 2, "queue": "high"}, "expected 2 pushes of 'fax', queue='high', found 0"),
    ],
)
def test_a_missing_push_is_told_with_what_was_pushed(how: dict[str, Any], message: str) -> None:
    queue = FakeQueue()
    queue.push(GRANT, job(number=1))
    with pytest.raises(AssertionError, match="^" + re.escape(message)):
        queue.assert_pushed("fax", **how)


def test_a_push_that_should_not_be_is_told() -> None:
    queue = FakeQueue()
    with pytest.raises(AssertionError, match="found 0; nothing was pushed"):
        queue.assert_pushed("mail")
    for _ in range(12):
        queue.later(GRANT, 90, job())
    with pytest.raises(AssertionError, match="expected 0 pushes of 'mail', found 12"):
        queue.assert_not_pushed("mail")
    with pytest.raises(
        AssertionError, match=r"expected no push; pushed were:\n  mail .*0:01:30 later(.|\n)*and 2 more"
    ):
        queue.assert_nothing_pushed()
    with pytest.raises(AssertionError, match="expected 3 pushes"):
        queue.assert_pushed("mail", times=3)


# Draining and settling.


def test_draining_runs_what_is_due_in_order_under_each_jobs_grant(place: Place) -> None:
    queue = FakeQueue(place.app)
    queue.push(GRANT, job(number=2))
    queue.push(GRANT, Job.new(GRANT, "mail", {"number": 1}, priority=1))
    ask = system_grant("ask", "globex")
    queue.push(ask, Job.new(ask, "ask"))
    queue.push_on(GRANT, "other", job(number=3))
    ran = queue.drain()
    assert place.ran == [1, 2, "globex", 3]
    assert [one.attempts for one in ran] == [1] * 4
    assert queue.counts().size == 0
    queue.assert_settled("mail", "delete")
    assert [one.how for one in queue.settlements()] == ["delete"] * 4
    assert hesape.current_job() is None


def test_draining_works_inside_a_running_loop(place: Place) -> None:
    queue = FakeQueue(place.app)
    grant = system_grant("ask", "acme")

    async def test() -> None:
        await queue.aio.push(grant, Job.new(grant, "ask"))
        queue.drain()

    asyncio.run(test())
    assert place.ran == ["acme"]


def test_what_a_handler_raises_is_raised_after_its_job_was_settled(place: Place) -> None:
    queue = FakeQueue(place.app)
    pushed = queue.push(GRANT, job(number=-1))
    with pytest.raises(ValueError, match="-1"):
        queue.drain()
    settled = queue.assert_settled(pushed, "release", delay=10, error=ValueError)
    assert settled.spent
    assert queue.drain() == [], "it isn't due yet"
    assert queue.counts().delayed == 1


def test_retries_follow_the_workers_rules_while_the_clock_moves(place: Place) -> None:
    queue = FakeQueue(place.app)
    began = queue.clock.now
    pushed = queue.push(GRANT, job(number=-1))
    ran = queue.drain(raise_errors=False, move_clock=True)
    assert [one.attempts for one in ran] == [1, 2, 3]
    assert queue.clock.now - began == timedelta(seconds=30)
    queue.assert_settled(pushed, "fail", error="ValueError: -1")
    assert [one.how for one in queue.settlements(pushed)] == ["release", "release", "fail"]
    read = system_grant("hesape.failed.read", "acme")
    assert queue.find(read, pushed.id).exceptions == 3


def test_the_clock_stands_until_it_is_moved(place: Place) -> None:
    queue = FakeQueue(place.app)
    queue.later(GRANT, timedelta(hours=2), job(number=1))
    queue.drain()
    queue.move(7_199)
    queue.drain()
    assert place.ran == []
    queue.move(timedelta(seconds=1))
    queue.drain()
    assert place.ran == [1]


def test_a_job_of_an_unknown_name_or_of_another_action_is_parked_and_told(place: Place) -> None:
    queue = FakeQueue(place.app)
    fax = system_grant("fax", "acme")
    pushed = queue.push(fax, Job.new(fax, "fax"))
    with pytest.raises(hesape.HandlerUnknownError):
        queue.drain()
    queue.assert_settled(pushed, "fail", error=hesape.HandlerUnknownError)
    disguised = queue.push(fax, Job.new(fax, "mail", {"number": 1}))
    with pytest.raises(hesape.ActionMismatchError):
        queue.drain()
    assert place.ran == []
    queue.assert_settled(disguised, "fail")


def test_middleware_and_handlers_settle_as_in_a_worker(place: Place) -> None:
    place.app.middleware.append(rate_limited(1, 100))

    @place.app.handler("once")
    def once(job: Job) -> None:
        place.ran.append("once")
        job.mark_as_failed()

    queue = FakeQueue(place.app)
    grant = system_grant("once", "acme")
    first, second = (queue.push(grant, Job.new(grant, "once")) for _ in range(2))
    queue.drain()
    queue.assert_settled(first, "delete")
    assert not queue.assert_settled(second, "release").spent
    queue.move(111)
    queue.drain()
    assert place.ran == ["once", "once"]


def test_a_settlement_in_a_transaction_is_recorded_with_it(place: Place) -> None:
    connection = object()

    @place.app.handler("both")
    def both(job: Job) -> None:
        job.delete(tx=connection)

    queue = FakeQueue(place.app)
    grant = system_grant("both", "acme")
    queue.push(grant, Job.new(grant, "both"))
    queue.drain()
    assert queue.assert_settled(both, "delete").tx is connection


def test_jobs_that_push_each_other_for_ever_are_found_out(place: Place) -> None:
    queue = FakeQueue(place.app)

    @place.app.handler("again")
    def again(grant: hesape.Grant) -> None:
        queue.push(grant, Job.new(grant, "again"))

    grant = system_grant("again", "acme")
    queue.push(grant, Job.new(grant, "again"))
    with pytest.raises(AssertionError, match="20 jobs were run and there are more, the next is 'again'"):
        queue.drain(most=20)
    assert queue.counts().pending == 1


def test_draining_without_handlers_says_what_is_missing() -> None:
    with pytest.raises(UnsupportedError, match=r"FakeQueue\(app\), or drain\(app\)"):
        FakeQueue().drain()


def test_a_settlement_that_is_not_as_expected_is_told(place: Place) -> None:
    queue = FakeQueue(place.app)
    queue.push(GRANT, job(number=-1))
    with pytest.raises(AssertionError, match="no delivery of it has ended; did you drain"):
        queue.assert_settled("mail", "delete")
    queue.drain(raise_errors=False)
    expected = (
        "to end by 'delete', found 'release' and to wait 5, found 10 s and to end with the error 'broken pipe', found"
    )
    with pytest.raises(AssertionError, match=expected):
        queue.assert_settled("mail", "delete", delay=5, error="broken pipe")
    with pytest.raises(AssertionError, match="KeyError"):
        queue.assert_settled(place.mail, "release", error=KeyError)


def test_a_job_popped_by_hand_is_recorded_too() -> None:
    queue = FakeQueue()
    queue.push(GRANT, job(number=1))
    (popped,) = queue.pop()
    popped.fail("no")
    popped.fail("no")
    queue.assert_settled(popped, "fail", error="no")
    assert len(queue.settlements()) == 1


# In an App's place.


def test_an_apps_connections_are_stood_in_for_inside_the_block_alone(place: Place) -> None:
    outside = place.app.connection()
    with fake(place.app) as queue:
        place.mail.push(GRANT, number=1)
        place.mail.using(connection="orders", tx=object()).push(GRANT, number=2)
        assert place.app.connection() is queue
        assert place.app.connection("orders") is queue.connection("orders")
        queue.assert_pushed(place.mail, times=1, payload={"number": 1})
        queue.connection("orders").assert_pushed(place.mail, payload={"number": 2}).pop()
        queue.connection("orders").drain()
        assert place.ran == [2]
        queue.move(5)
        assert queue.connection("orders").clock.now == queue.clock.now
    assert place.app.connection() is outside


def test_blocks_do_not_see_each_others_pushes_and_end_by_an_error_too(place: Place) -> None:
    outside = place.app.connection()

    def breaks() -> None:
        with fake(place.app, "orders") as queue:
            place.mail.using(connection="orders").push(GRANT, number=1)
            queue.assert_pushed("mail")
            raise KeyError

    with pytest.raises(KeyError):
        breaks()
    assert place.app.connection() is outside
    with fake(place.app) as queue:
        queue.connection("orders").assert_nothing_pushed()
        with pytest.raises(ConfigError, match=r"no connection named 'ordres' is faked here \(faked: main, orders\)"):
            queue.connection("ordres")


def test_unique_keys_are_kept_by_the_tests_clock() -> None:
    queue = FakeQueue()
    once = Attributes(unique_for=60)
    queue.push(GRANT, Job.new(GRANT, "mail", attributes=once))
    with pytest.raises(hesape.AlreadyQueuedError):
        queue.push(GRANT, Job.new(GRANT, "mail", attributes=once))
    queue.move(61)
    queue.push(GRANT, Job.new(GRANT, "mail", attributes=once))


# The clock.


def test_a_clock_can_be_set_and_moved_either_way() -> None:
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    clock.move(1.5)
    clock.move(timedelta(hours=-1))
    assert clock.now == datetime(2029, 12, 31, 23, 0, 1, 500_000, tzinfo=UTC)
    clock.set(datetime(2031, 1, 1, tzinfo=UTC))
    assert clock() == round(datetime(2031, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
    with pytest.raises(TimeInvalidError):
        Clock(datetime(2030, 1, 1))  # noqa: DTZ001 - that it is naive is the point
    with pytest.raises(TimeInvalidError):
        clock.move("soon")  # type: ignore[arg-type]


def test_a_clock_of_ones_own_drives_the_queue() -> None:
    clock = Clock(datetime(2030, 1, 1, tzinfo=UTC))
    queue = FakeQueue(clock=clock)
    queue.push(GRANT, job())
    assert queue.oldest_pending() == datetime(2030, 1, 1, tzinfo=UTC)
