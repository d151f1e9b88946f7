"""Dropping a job without running it, and parking it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hesape.errors import ArgumentInvalidError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.middleware import fail_on_exception, skip
from hesape.testing import FakeJob

if TYPE_CHECKING:
    from middleware.conftest import Bench


@pytest.mark.parametrize(
    ("middleware", "runs"),
    [
        (skip.when(condition=True), False),
        (skip.when(condition=False), True),
        (skip.unless(condition=True), True),
        (skip.unless(condition=False), False),
        (skip.when(lambda job: job.tenant == "acme"), False),
        (skip.unless(lambda job: job.tenant), True),
    ],
)
def test_a_skipped_job_is_done_without_running(bench: Bench, middleware: skip.Skip, *, runs: bool) -> None:
    bench.app.handler("tidy", middleware=[middleware])(lambda: bench.ran.append("x"))
    bench.push("tidy")
    bench.work()
    assert (len(bench.ran), bench.counts()) == (int(runs), (0, 0, 0, 0))


def test_a_condition_is_asked_when_the_jobs_turn_has_come_and_its_error_is_the_jobs(bench: Bench) -> None:
    def condition(job: Job) -> bool:
        raise LookupError

    bench.app.handler("tidy", tries=1, middleware=[skip.when(condition)])(lambda: bench.ran.append("x"))
    bench.push("tidy")
    bench.work()
    assert (bench.ran, bench.counts()) == ([], (0, 0, 0, 1))


def test_a_condition_that_is_neither_truth_nor_function_is_refused() -> None:
    with pytest.raises(ArgumentInvalidError, match=r"skip\.when: 'no': expected True, False or a function"):
        skip.when("no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "middleware",
    [fail_on_exception(LookupError, TypeError), fail_on_exception(lambda error: "seven" in str(error))],
    ids=["classes", "predicate"],
)
def test_a_matching_error_parks_at_once_and_others_are_retried(bench: Bench, middleware: object) -> None:
    @bench.app.handler("read", backoff=100, middleware=[middleware])  # type: ignore[list-item]
    def read(number: int) -> None:
        raise KeyError("seven") if number == 7 else ValueError("other")

    hopeless, other = bench.push("read", {"number": 7}), bench.push("read", {"number": 8})
    bench.work()
    assert bench.counts() == (0, 1, 0, 1)
    found = bench.queue.find(system_grant("hesape.failed.read", "acme"), hopeless.id)
    assert (found.last_error or "").startswith("KeyError: 'seven'")
    assert found.exceptions == 1
    assert bench.kinds(hopeless)[-3:] == ["failed", "exception", "attempted"]
    assert bench.kinds(other)[-3:] == ["exception", "released", "attempted"]


def test_the_error_goes_on_to_the_middleware_outside() -> None:
    job, seen = FakeJob("read", "acme"), KeyError("seven")

    def step() -> None:
        raise seen

    with pytest.raises(KeyError) as caught:
        fail_on_exception(LookupError)(job, step)
    assert caught.value is seen
    assert job.failed_with is seen


def test_a_job_that_is_settled_already_is_left_alone() -> None:
    job = FakeJob("read", "acme")

    def step() -> None:
        job.release(5)
        raise KeyError

    with pytest.raises(KeyError):
        fail_on_exception(LookupError)(job, step)
    assert job.is_released
    assert job.failed_with is None


@pytest.mark.parametrize("errors", [(), ("no",), (int,), (len, max), (KeyboardInterrupt,)])
def test_what_is_neither_exceptions_nor_one_function_is_refused(errors: tuple[object, ...]) -> None:
    with pytest.raises(ArgumentInvalidError, match="expected classes of exceptions"):
        fail_on_exception(*errors)  # type: ignore[arg-type]
