from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hesape import times
from hesape.attributes import Attributes
from hesape.errors import ArgumentsMismatchError, AttemptsExceededError, DeadlineExceededError, FailJob
from hesape.worker.options import WorkerOptions
from hesape.worker.outcome import (
    Limits,
    Park,
    Release,
    Standing,
    after_error,
    before_running,
    delay_after,
    limits_of,
    own_schedule,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
NOW_US = times.to_us(NOW)
LATER = NOW + timedelta(minutes=1)
EARLIER = NOW - timedelta(microseconds=1)
OPTIONS = WorkerOptions(tries=5)


def standing(attempts: int = 1, exceptions: int = 0, lapses: int = 0, last_error: str | None = None) -> Standing:
    return Standing(attempts, exceptions, lapses, last_error, NOW_US)


def limits(options: WorkerOptions = OPTIONS, **wanted: object) -> Limits:
    attributes = Attributes(**wanted)  # type: ignore[arg-type]
    until = attributes.retry_until
    return limits_of(attributes, options, None if until is None else times.to_us(until))


def decide(
    at: Standing, bound: Limits, *, timed_out: bool = False, error: BaseException | None = None
) -> Park | Release:
    return after_error(at, bound, error or ValueError("no"), timed_out=timed_out)


def test_a_job_runs_as_often_as_its_tries_say() -> None:
    assert before_running(standing(attempts=3), limits(tries=3)) is None
    assert isinstance(before_running(standing(attempts=4), limits(tries=3)), AttemptsExceededError)


def test_the_workers_tries_count_where_the_job_says_nothing() -> None:
    assert before_running(standing(attempts=5), limits()) is None
    assert isinstance(before_running(standing(attempts=6), limits()), AttemptsExceededError)


def test_negative_tries_are_no_limit_even_over_the_workers() -> None:
    assert before_running(standing(attempts=10_000), limits(tries=-1)) is None
    assert isinstance(decide(standing(attempts=10_000), limits(tries=-1)), Release)


@pytest.mark.parametrize("worker_tries", [0, -1])
def test_a_worker_without_tries_sets_no_limit(worker_tries: int) -> None:
    assert before_running(standing(attempts=99), limits(WorkerOptions(tries=worker_tries))) is None


def test_a_job_without_a_limit_is_parked_at_its_fifth_lapse() -> None:
    assert before_running(standing(attempts=5, lapses=4), limits(tries=-1)) is None
    assert isinstance(before_running(standing(attempts=6, lapses=5), limits(tries=-1)), AttemptsExceededError)


def test_lapses_dont_park_a_job_whose_tries_will() -> None:
    assert before_running(standing(attempts=8, lapses=7), limits(tries=9)) is None


def test_the_reason_for_parking_tells_lapses_from_failures_and_keeps_the_last_error() -> None:
    cause = before_running(standing(attempts=4, lapses=3, last_error="ValueError: no\n\nTrace"), limits(tries=3))
    assert "the last 3 ended without an outcome: the worker died or the lease ran out" in str(cause)
    assert str(cause).endswith("the last error was ValueError: no")


def test_past_its_retry_until_a_job_is_parked_whatever_its_tries() -> None:
    assert isinstance(before_running(standing(), limits(tries=-1, retry_until=EARLIER)), DeadlineExceededError)
    assert isinstance(before_running(standing(), limits(tries=9, retry_until=NOW)), DeadlineExceededError)


def test_before_its_retry_until_the_workers_tries_dont_count() -> None:
    assert before_running(standing(attempts=99), limits(retry_until=LATER)) is None
    assert isinstance(decide(standing(attempts=99), limits(retry_until=LATER)), Release)


def test_before_its_retry_until_its_own_tries_count() -> None:
    assert isinstance(before_running(standing(attempts=3), limits(tries=2, retry_until=LATER)), AttemptsExceededError)
    assert isinstance(decide(standing(attempts=2), limits(tries=2, retry_until=LATER)), Park)


def test_before_its_retry_until_max_exceptions_and_fail_on_timeout_count() -> None:
    assert isinstance(decide(standing(exceptions=1), limits(max_exceptions=2, retry_until=LATER)), Park)
    assert isinstance(decide(standing(), limits(fail_on_timeout=True, retry_until=LATER), timed_out=True), Park)


def test_a_job_that_kills_its_worker_is_ended_though_its_retry_until_is_far() -> None:
    assert isinstance(before_running(standing(attempts=6, lapses=5), limits(retry_until=LATER)), AttemptsExceededError)


def test_a_failure_at_its_retry_until_parks() -> None:
    assert isinstance(decide(standing(), limits(retry_until=NOW)), Park)


def test_the_last_of_its_tries_parks_and_the_one_before_releases() -> None:
    assert isinstance(decide(standing(attempts=2), limits(tries=3)), Release)
    assert isinstance(decide(standing(attempts=3), limits(tries=3)), Park)


def test_max_exceptions_counts_this_failure() -> None:
    assert isinstance(decide(standing(exceptions=0), limits(max_exceptions=2)), Release)
    assert isinstance(decide(standing(exceptions=1), limits(max_exceptions=2)), Park)


def test_a_timeout_counts_as_an_exception() -> None:
    assert isinstance(decide(standing(), limits(max_exceptions=1, tries=5), timed_out=True), Park)


def test_fail_on_timeout_parks_at_a_timeout_alone() -> None:
    assert isinstance(decide(standing(), limits(fail_on_timeout=True), timed_out=True), Park)
    assert isinstance(decide(standing(), limits(fail_on_timeout=True)), Release)
    assert isinstance(decide(standing(), limits(), timed_out=True), Release)


@pytest.mark.parametrize("error", [FailJob("enough"), ArgumentsMismatchError("no such parameter")])
def test_what_no_retry_can_mend_parks_at_once(error: BaseException) -> None:
    assert decide(standing(), limits(tries=-1), error=error) == Park(error)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), BaseException(), GeneratorExit()])
def test_an_unusual_exception_is_a_failure_like_any_other(error: BaseException) -> None:
    assert isinstance(decide(standing(), limits(), error=error), Release)
    assert decide(standing(attempts=5), limits(), error=error) == Park(error)


def test_the_list_of_delays_is_indexed_by_failures_not_by_deliveries() -> None:
    listed = limits(backoff=(1, 10, 100), tries=-1)
    assert decide(standing(attempts=1, exceptions=0), listed) == Release(1)
    assert decide(standing(attempts=3, exceptions=1), listed) == Release(10)
    assert decide(standing(attempts=9, exceptions=7), listed) == Release(100)


def test_a_delay_of_zero_in_the_list_is_at_once() -> None:
    assert delay_after(1, Attributes(backoff=0)) == 0


def test_the_workers_schedule_stays_within_an_hour_for_any_number_of_failures() -> None:
    for failures in (*range(-1, 40), 1_023, 1_024, 1_025, 2_000, 5_000, 2**31):
        longest = min(3_600, 2 ** min(max(failures, 0), 12))
        assert 0.75 * longest <= own_schedule(failures) <= longest


def test_the_timeout_is_the_jobs_else_the_workers_and_negative_is_none() -> None:
    assert limits(WorkerOptions(timeout_s=7)).timeout_s == 7
    assert limits(WorkerOptions(timeout_s=7), timeout=2).timeout_s == 2
    assert limits(WorkerOptions(timeout_s=7), timeout=-1).timeout_s == 0
    assert limits(WorkerOptions(timeout_s=-1)).timeout_s == 0
