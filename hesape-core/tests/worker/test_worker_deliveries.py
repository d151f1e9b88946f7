"""What becomes of one delivery, from its lookup to its last event."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from hesape import context
from hesape.attributes import Attributes
from hesape.errors import FailJob
from hesape.events import JobAttempted
from hesape.grants import Grant
from hesape.jobs import Job
from hesape.records import Counts
from hesape.worker import runner

if TYPE_CHECKING:
    from worker.conftest import Shop


def test_a_job_runs_once_and_is_gone(shop: Shop) -> None:
    seen: list[tuple[int, str]] = []

    @shop.handler("add")
    def add(job: Job, number: int) -> None:
        seen.append((number, job.id))

    job = shop.push("add", {"number": 42})
    shop.work()
    assert seen == [(42, job.id)]
    assert shop.queue.counts() == Counts(0, 0, 0, 0)


def test_the_handler_runs_under_the_jobs_action_and_tenant(shop: Shop) -> None:
    seen: list[tuple[str, str, str]] = []

    @shop.handler("look")
    def look(grant: Grant) -> None:
        seen.append((grant.tenant, grant.action, grant.subject.id))

    shop.push("look", tenant="acme")
    shop.push("look", tenant="globex")
    shop.work(concurrency=1)
    assert seen == [("acme", "look", "system"), ("globex", "look", "system")]


def test_a_coroutine_handler_runs_on_one_loop_for_all(shop: Shop) -> None:
    loops: set[int] = set()
    threads: set[int] = set()

    @shop.handler("wait")
    async def wait() -> None:
        await asyncio.sleep(0.01)
        loops.add(id(asyncio.get_running_loop()))
        threads.add(threading.get_ident())

    for _ in range(20):
        shop.push("wait")
    shop.work()
    assert len(loops) == len(threads) == 1
    assert shop.queue.counts().size == 0


def test_coroutines_run_beside_each_other_up_to_the_concurrency(shop: Shop) -> None:
    now: list[int] = []
    most: list[int] = []

    @shop.handler("wait")
    async def wait() -> None:
        now.append(1)
        most.append(len(now))
        await asyncio.sleep(0.02)
        now.pop()

    for _ in range(12):
        shop.push("wait")
    shop.work(concurrency=3)
    assert max(most) == 3


def test_an_unknown_name_is_parked_with_the_reason(shop: Shop) -> None:
    job = shop.push("nobody")
    shop.work()
    found = shop.queue.operator().find(job.id)
    assert (found.last_error or "").startswith("HandlerUnknownError: no handler for the job 'nobody'")
    assert shop.kinds(job)[-3:] == ["processing", "failed", "attempted"]


def test_a_name_is_no_way_around_an_action(shop: Shop) -> None:
    ran: list[str] = []

    @shop.handler("tenant.delete", action="tenant.delete")
    def delete() -> None:
        ran.append("deleted")

    job = shop.push("tenant.delete", action="report.read")
    shop.work()
    assert ran == []
    assert (shop.queue.operator().find(job.id).last_error or "").startswith("ActionMismatchError:")


def test_a_payload_that_doesnt_fit_parks_at_once(shop: Shop) -> None:
    @shop.handler("add", tries=5)
    def add(number: int) -> None:
        raise AssertionError

    job = shop.push("add", {"number": "no"})
    shop.work()
    found = shop.queue.operator().find(job.id)
    assert (found.last_error or "").startswith("ArgumentsMismatchError:")


def test_a_failure_is_counted_and_comes_back_after_its_delay(shop: Shop) -> None:
    ran: list[tuple[int, int]] = []

    @shop.handler("fail", tries=3, backoff=0)
    def fail(job: Job) -> None:
        ran.append((job.attempts, job.exceptions))
        message = "no luck"
        raise ValueError(message)

    job = shop.push("fail")
    shop.work()
    assert ran == [(1, 0), (2, 1), (3, 2)]
    found = shop.queue.operator().find(job.id)
    assert (found.last_error or "").startswith("ValueError: no luck\n\nTraceback")


def test_fail_job_parks_at_once(shop: Shop) -> None:
    ran: list[int] = []

    @shop.handler("fail", tries=-1)
    def fail() -> None:
        ran.append(1)
        message = "enough"
        raise FailJob(message)

    job = shop.push("fail")
    shop.work()
    assert ran == [1]
    assert (shop.queue.operator().find(job.id).last_error or "").startswith("FailJob: enough")


def test_the_delays_are_indexed_by_failures_and_a_release_is_none(shop: Shop) -> None:
    @shop.handler("mixed", tries=6, backoff=(0, 0.01, 100))
    def mixed(job: Job) -> None:
        if job.attempts == 2:
            job.release(0)
            return
        raise ValueError

    job = shop.push("mixed")
    shop.start()
    shop.until(lambda: shop.kinds(job).count("attempted") == 4)
    shop.stop()
    delays = [getattr(event, "delay_s", None) for event in shop.events if event.kind == "released"]
    assert delays == [0, 0.01, 100]
    assert shop.queue.counts().delayed == 1


class AwkwardError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(one, two)


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _recurse() -> None:
    _recurse()


def raise_it(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("raises", "name"),
    [
        (lambda: raise_it(AwkwardError(1, 2)), "AwkwardError"),
        (lambda: raise_it(SilentError()), "SilentError"),
        (lambda: raise_it(SystemExit(0)), "SystemExit"),
        (lambda: raise_it(KeyboardInterrupt()), "KeyboardInterrupt"),
        (lambda: raise_it(BaseException()), "BaseException"),
        (lambda: raise_it(GeneratorExit()), "GeneratorExit"),
        (_recurse, "RecursionError"),
        (lambda: raise_it(asyncio.CancelledError()), "CancelledError"),
        (lambda: raise_it(StopIteration()), "StopIteration"),
    ],
)
@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_an_unusual_exception_is_a_failure_and_the_worker_goes_on(
    shop: Shop, raises: Callable[[], None], name: str, kind: str
) -> None:
    ran: list[str] = []

    @shop.handler("thread", tries=2, backoff=0)
    def thread() -> None:
        ran.append("x")
        raises()

    @shop.handler("coroutine", tries=2, backoff=0)
    async def coroutine() -> None:
        ran.append("x")
        raises()

    @shop.handler("good")
    async def good() -> None:
        ran.append("good")

    job = shop.push(kind)
    shop.push("good")
    shop.work(concurrency=1)
    assert sorted(ran) == ["good", "x", "x"]
    error = shop.queue.operator().find(job.id).last_error or ""
    assert error.startswith((name, "RuntimeError" if name == "StopIteration" and kind == "coroutine" else name))


def test_a_job_that_its_handler_released_is_left_alone(shop: Shop) -> None:
    @shop.handler("later")
    def later(job: Job) -> None:
        job.release(100)

    job = shop.push("later")
    shop.work()
    assert shop.queue.counts() == Counts(0, 1, 0, 0)
    assert shop.kinds(job)[-2:] == ["processed", "attempted"]


def test_a_job_that_its_handler_settled_is_left_alone_though_the_handler_raises(shop: Shop) -> None:
    @shop.handler("done")
    def done(job: Job) -> None:
        job.delete()
        raise ValueError

    job = shop.push("done")
    shop.work()
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert shop.kinds(job)[-2:] == ["exception", "attempted"]


@pytest.mark.parametrize("raises", [False, True])
def test_a_job_that_is_marked_as_failed_is_deleted_and_reported_as_failed(shop: Shop, raises: bool) -> None:  # noqa: FBT001
    @shop.handler("mark")
    def mark(job: Job) -> None:
        job.mark_as_failed()
        if raises:
            raise ValueError

    job = shop.push("mark")
    shop.work()
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert shop.kinds(job)[-2:] == ["failed", "attempted"]


def test_what_a_handler_writes_on_its_job_changes_neither_counts_nor_grant(shop: Shop) -> None:
    @shop.handler("edit", tries=2, backoff=0)
    def edit(job: Job) -> None:
        job.attempts = job.exceptions = -50
        job.tenant, job.action, job.attributes = "other", "other", Attributes(tries=-1)
        raise ValueError

    job = shop.push("edit", tenant="acme")
    shop.work()
    assert shop.kinds(job).count("attempted") == 2
    found = shop.queue.operator().find(job.id)
    assert (found.tenant, found.exceptions) == ("acme", 2)


def test_past_its_retry_until_a_job_doesnt_run(shop: Shop) -> None:
    from datetime import UTC, datetime, timedelta

    @shop.handler("late")
    def late() -> None:
        raise AssertionError

    job = shop.push("late", attributes=Attributes(retry_until=datetime.now(UTC) - timedelta(seconds=1)))
    shop.work()
    assert (shop.queue.operator().find(job.id).last_error or "").startswith("DeadlineExceededError")


def test_middleware_runs_around_the_handler_the_workers_outermost(shop: Shop) -> None:
    ran: list[str] = []

    def around(name: str) -> Callable[[Job, Callable[[], object]], object]:
        def middleware(job: Job, step: Callable[[], object]) -> object:
            ran.append(f"{name} in")
            result = step()
            ran.append(f"{name} out")
            return result

        return middleware

    shop.middleware = [around("worker")]

    @shop.handler("work", middleware=[around("handler")])
    async def work() -> None:
        ran.append("work")

    shop.push("work")
    shop.work()
    assert ran == ["worker in", "handler in", "work", "handler out", "worker out"]


def test_middleware_that_doesnt_go_on_has_handled_the_job(shop: Shop) -> None:
    shop.middleware = [lambda job, step: None]

    @shop.handler("work")
    def work() -> None:
        raise AssertionError

    shop.push("work")
    shop.work()
    assert shop.queue.counts() == Counts(0, 0, 0, 0)


def test_a_job_and_its_grant_answer_for_this_run_alone(shop: Shop) -> None:
    seen: list[tuple[Any, ...]] = []
    own: contextvars.ContextVar[str] = contextvars.ContextVar("own", default="")

    @shop.handler("look", tries=2, backoff=0)
    def look(job: Job) -> None:
        current, grant = context.current_job(), context.current_grant()
        seen.append((current is job, grant and grant.tenant, own.get()))
        own.set(job.tenant)
        if job.tenant == "raises":
            raise ValueError
        if job.tenant == "releases":
            job.release(100)

    @shop.handler("alook")
    async def alook(job: Job) -> None:
        await asyncio.sleep(0)
        current, grant = context.current_job(), context.current_grant()
        seen.append((current is job, grant and grant.tenant, own.get()))
        own.set(job.tenant)

    for tenant in ("raises", "releases", "acme"):
        shop.push("look", tenant=tenant)
        shop.push("alook", tenant=tenant)
    shop.work(concurrency=1)
    assert len(seen) == 7
    assert all(mine and not leaked for mine, _, leaked in seen)
    assert context.current_job() is None


def test_events_come_in_order_and_say_how_it_ended(shop: Shop) -> None:
    @shop.handler("good")
    def good() -> None: ...

    @shop.handler("bad", tries=2, backoff=0)
    def bad() -> None:
        raise ValueError

    one, two = shop.push("good"), shop.push("bad")
    shop.work()
    assert shop.kinds(one) == ["queueing", "queued", "popped", "processing", "processed", "attempted"]
    assert shop.kinds(two)[2:] == [
        *("popped", "processing", "exception", "released", "attempted"),
        *("popped", "processing", "failed", "exception", "attempted"),
    ]
    outcomes = [event.outcome for event in shop.events if isinstance(event, JobAttempted) and event.id == two.id]
    assert outcomes == ["released", "failed"]
    worker = [event.kind for event in shop.events if hasattr(event, "worker")]
    assert (worker[0], worker[-1]) == ("starting", "stopping")


def test_log_records_carry_the_facts_of_the_job(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    @shop.handler("bad", tries=1)
    def bad() -> None:
        time.sleep(0.01)
        raise ValueError

    job = shop.push("bad", tenant="globex", queue="letters")
    with caplog.at_level(logging.DEBUG, "hesape.worker"):
        shop.work(queues=("letters",))
    record = next(record for record in caplog.records if "is parked" in record.getMessage())
    facts = {name: getattr(record, name) for name in ("job", "queue", "tenant", "attempt")}
    assert facts == {"job": job.id, "queue": "letters", "tenant": "globex", "attempt": 1}
    assert vars(record)["duration"] >= 0.01


def test_names_that_lead_to_one_handler_are_remembered_up_to_a_number(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_MOST_PLANS", 3)
    seen: list[str] = []

    @shop.handler("Send")
    def send(job: Job) -> None:
        seen.append(job.name)

    names = [f"Send@method{n}" for n in range(8)]
    for name in names:
        shop.push(name, action="Send")
    shop.work()
    assert sorted(seen) == names
    assert 0 < len(shop.workers[0]._runner._plans) <= 3
