"""So many runs in a window, and so many failures before nothing runs: counted on the store's clock."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from hesape.errors import FailJob, InvalidError, OutcomeUnknownError, StoreUnavailableError
from hesape.events import JobReleased
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.middleware import rate_limited, throttles_exceptions

if TYPE_CHECKING:
    from middleware.conftest import Bench


def no_answer(*_: object) -> tuple[int, int]:
    raise OutcomeUnknownError


def away(*_: object) -> tuple[int, int]:
    raise StoreUnavailableError


# rate_limited


def test_the_limit_runs_in_a_window_and_the_rest_when_it_is_over(bench: Bench) -> None:
    bench.app.handler("mail", tries=1, middleware=[rate_limited(3, 100)])(lambda: bench.ran.append("x"))
    for _ in range(7):
        bench.push("mail")
    bench.work()
    assert (len(bench.ran), bench.counts()) == (3, (0, 4, 0, 0))
    bench.advance(95)
    bench.work()
    assert len(bench.ran) == 3
    bench.advance(20)
    bench.work()
    assert (len(bench.ran), bench.counts()) == (6, (0, 1, 0, 0))
    bench.advance(115)
    bench.work()
    assert (len(bench.ran), bench.counts()) == (7, (0, 0, 0, 0))


def test_what_is_refused_comes_back_after_the_window_and_not_all_at_once(bench: Bench) -> None:
    bench.app.handler("mail", middleware=[rate_limited(1, 100)])(lambda: None)
    for _ in range(20):
        bench.push("mail")
    bench.work()
    began = bench.driver.now()
    bench.advance(1_000)
    due = sorted(job.run_at.timestamp() - began / 1_000_000 for job in bench.queue.pop(n=20) if job.run_at)
    assert 98 < due[0] < due[-1] < 111
    assert len(set(due)) == 19


def test_release_after_stands_in_for_the_end_of_the_window(bench: Bench) -> None:
    bench.app.handler("mail", middleware=[rate_limited(1, 100, release_after=10)])(lambda: None)
    bench.push("mail")
    bench.push("mail")
    bench.work()
    bench.advance(11.5)
    assert len(bench.queue.pop(n=5)) == 1


def test_every_tenant_has_a_limit_of_its_own_and_a_key_joins_names(bench: Bench) -> None:
    @bench.app.handler("mail", middleware=[rate_limited(1, 100, key="smtp")])
    def mail(job: Job) -> None:
        bench.ran.append(job.tenant)

    bench.app.handler("fax", middleware=[rate_limited(1, 100, key="smtp")])(mail.function)
    for name in ("mail", "fax"):
        bench.push(name)
        bench.push(name, tenant="globex")
    bench.work()
    assert sorted(bench.ran) == ["acme", "globex"]


def test_without_a_key_every_name_has_a_limit_of_its_own(bench: Bench) -> None:
    for name in ("mail", "fax"):
        bench.app.handler(name, middleware=[rate_limited(1, 100)])(lambda: bench.ran.append("x"))
        bench.push(name)
    bench.work()
    assert len(bench.ran) == 2


def test_with_drop_what_is_over_the_limit_is_done(bench: Bench) -> None:
    bench.app.handler("mail", middleware=[rate_limited(1, 100, drop=True)])(lambda: bench.ran.append("x"))
    bench.push("mail")
    bench.push("mail")
    bench.work()
    assert (len(bench.ran), bench.counts()) == (1, (0, 0, 0, 0))


@pytest.mark.parametrize("trouble", [away, no_answer])
def test_nothing_runs_while_runs_cannot_be_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, trouble: object
) -> None:
    bench.app.handler("mail", middleware=[rate_limited(5, 100)])(lambda: bench.ran.append("x"))
    bench.push("mail")
    with monkeypatch.context() as patched:
        patched.setattr(bench.driver, "increment", trouble)
        bench.work()
    assert (bench.ran, bench.counts()) == ([], (0, 1, 0, 0))
    bench.advance(6)
    bench.work()
    assert bench.ran == ["x"]


def test_the_apps_own_list_is_around_every_handler(bench: Bench) -> None:
    bench.app.middleware.append(rate_limited(1, 100, key="all"))
    for name in ("mail", "fax"):
        bench.app.handler(name)(lambda: bench.ran.append("x"))
        bench.push(name)
    bench.work()
    assert len(bench.ran) == 1


def test_threads_that_ask_at_once_do_not_pass_the_limit(bench: Bench) -> None:
    bench.app.handler("mail", middleware=[rate_limited(5, 3_600)])(lambda: bench.ran.append("x"))
    grant = system_grant("mail", "acme")
    bench.queue.bulk(grant, [Job.new(grant, "mail") for _ in range(60)])
    bench.work(concurrency=8)
    assert (len(bench.ran), bench.counts()) == (5, (0, 55, 0, 0))


@pytest.mark.parametrize(
    ("arguments", "options", "what"),
    [
        ((0, 60), {}, "rate_limited: limit 0: expected a whole number of at least 1"),
        ((True, 60), {}, "rate_limited: limit True"),
        ((1, 0), {}, "rate_limited: per 0: expected more than 0 seconds"),
        ((1, "hour"), {}, "rate_limited: per 'hour': expected seconds"),
        ((1, 60), {"release_after": -1}, "rate_limited: release_after -1"),
        ((1, 60), {"key": 7}, "rate_limited: key 7"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    arguments: tuple[int, float], options: dict[str, str], what: str
) -> None:
    with pytest.raises(InvalidError, match=what):
        rate_limited(*arguments, **options)  # type: ignore[arg-type]


# throttles_exceptions


def test_after_so_many_failures_nothing_runs_until_the_time_is_over(bench: Bench) -> None:
    broken = [True]

    @bench.app.handler("call", tries=3, backoff=0, middleware=[throttles_exceptions(4, 100)])
    def call(job: Job) -> None:
        bench.ran.append(job.id)
        if broken[0]:
            raise ConnectionError

    for _ in range(5):
        bench.push("call")
    bench.work(concurrency=1)
    assert (len(bench.ran), bench.counts()) == (4, (0, 5, 0, 0))
    broken[0] = False
    bench.advance(115)
    bench.work(concurrency=1)
    assert (len(bench.ran), bench.counts()) == (9, (0, 0, 0, 0))


def test_what_is_refused_spends_no_attempt_and_a_failure_does(bench: Bench) -> None:
    attempts: list[int] = []

    @bench.app.handler("call", tries=2, backoff=0, middleware=[throttles_exceptions(1, 100)])
    def call(job: Job) -> None:
        attempts.append(job.attempts)
        raise ConnectionError

    job = bench.push("call")
    bench.work()
    for _ in range(3):
        bench.advance(20)
        bench.work()
    assert attempts == [1]
    bench.advance(60)
    bench.work()
    assert attempts == [1, 2]
    assert bench.counts() == (0, 0, 0, 1)
    assert bench.kinds(job)[-3:] == ["failed", "exception", "attempted"]


def test_with_retry_after_a_failure_spends_no_attempt_and_is_recorded(bench: Bench) -> None:
    seen: list[tuple[int, int, str]] = []

    @bench.app.handler("call", tries=1, middleware=[throttles_exceptions(9, 100, retry_after=10)])
    def call(job: Job) -> None:
        seen.append((job.attempts, job.exceptions, (job.last_error or "").partition("\n")[0]))
        raise ConnectionError("refused")

    bench.push("call")
    for _ in range(3):
        bench.work()
        assert bench.counts() == (0, 1, 0, 0)
        bench.advance(11.5)
    assert seen == [
        (1, 0, ""),
        (1, 1, "ConnectionError: refused"),
        (1, 2, "ConnectionError: refused"),
    ]


def test_with_retry_after_the_jobs_own_max_exceptions_still_ends_it(bench: Bench) -> None:
    @bench.app.handler("call", max_exceptions=2, middleware=[throttles_exceptions(9, 100, retry_after=10)])
    def call() -> None:
        raise ConnectionError

    call.push(system_grant("call", "acme"))
    bench.work()
    bench.advance(12)
    bench.work()
    assert bench.counts() == (0, 0, 0, 1)


def test_only_the_failures_that_when_accepts_are_counted(bench: Bench) -> None:
    def is_connection(error: Exception) -> bool:
        return isinstance(error, ConnectionError)

    @bench.app.handler("call", tries=1, middleware=[throttles_exceptions(1, 100, when=is_connection)])
    def call() -> None:
        bench.ran.append("x")
        raise ValueError

    bench.push("call")
    bench.push("call")
    bench.work()
    assert (len(bench.ran), bench.counts()) == (2, (0, 0, 0, 2))


def test_delete_when_drops_and_fail_when_parks_and_neither_counts(bench: Bench) -> None:
    around = throttles_exceptions(
        1,
        100,
        delete_when=lambda error: isinstance(error, KeyError),
        fail_when=lambda error: isinstance(error, LookupError),
    )

    @bench.app.handler("call", middleware=[around])
    def call(number: int) -> None:
        bench.ran.append("x")
        raise KeyError if number % 2 else IndexError

    jobs = [bench.push("call", {"number": number}) for number in range(4)]
    bench.work(concurrency=1)
    assert (len(bench.ran), bench.counts()) == (4, (0, 0, 0, 2))
    read = system_grant("hesape.failed.read", "acme")
    assert {job.id for job in bench.queue.failed(read)} == {jobs[0].id, jobs[2].id}
    assert "IndexError" in (bench.queue.find(read, jobs[0].id).last_error or "")
    assert bench.kinds(jobs[0])[-3:] == ["failed", "exception", "attempted"]


def test_fail_job_and_arguments_that_do_not_fit_are_not_counted(bench: Bench) -> None:
    @bench.app.handler("call", middleware=[throttles_exceptions(1, 100)])
    def call(number: int) -> None:
        bench.ran.append("x")
        raise FailJob

    bench.push("call", {})
    bench.push("call", {"number": 1})
    bench.push("call", {"number": 2})
    bench.work(concurrency=1)
    assert (len(bench.ran), bench.counts()) == (2, (0, 0, 0, 3))


def test_by_job_one_broken_job_does_not_hold_up_the_others(bench: Bench) -> None:
    @bench.app.handler("call", backoff=0, middleware=[throttles_exceptions(2, 100, by_job=True)])
    def call(number: int) -> None:
        bench.ran.append(str(number))
        if number == 0:
            raise ConnectionError

    for number in range(4):
        bench.push("call", {"number": number})
    bench.work(concurrency=1)
    assert sorted(bench.ran) == ["0", "0", "1", "2", "3"]
    assert bench.counts() == (0, 1, 0, 0)


def test_every_tenant_has_a_breaker_of_its_own_and_a_key_joins_names(bench: Bench) -> None:
    @bench.app.handler("call", tries=1, middleware=[throttles_exceptions(1, 100, key="api")])
    def call(job: Job) -> None:
        bench.ran.append(job.tenant)
        raise ConnectionError

    bench.app.handler("ask", tries=1, middleware=[throttles_exceptions(1, 100, key="api")])(call.function)
    for name in ("call", "ask"):
        bench.push(name)
        bench.push(name, tenant="globex")
    bench.work(concurrency=1)
    assert sorted(bench.ran) == ["acme", "globex"]


def test_nothing_runs_while_failures_cannot_be_looked_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.app.handler("call", middleware=[throttles_exceptions(1, 100)])(lambda: bench.ran.append("x"))
    bench.push("call")
    with monkeypatch.context() as patched:
        patched.setattr(bench.driver, "increment", away)
        bench.work()
    assert (bench.ran, bench.counts()) == ([], (0, 1, 0, 0))


def test_a_failure_that_cannot_be_counted_is_the_workers_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    patched = threading.Event()

    @bench.app.handler("call", tries=1, middleware=[throttles_exceptions(1, 100)])
    def call() -> None:
        monkeypatch.setattr(bench.driver, "increment", no_answer)
        patched.set()
        raise ConnectionError

    bench.push("call")
    bench.work()
    assert patched.is_set()
    assert bench.counts() == (0, 0, 0, 1)


def test_a_timeout_counts_as_a_failure(bench: Bench) -> None:
    @bench.app.handler("call", timeout=0.1, backoff=0, middleware=[throttles_exceptions(1, 100)])
    def call() -> None:
        bench.ran.append("x")
        until = time.monotonic() + 10
        while time.monotonic() < until:
            time.sleep(0.01)  # the handler's work, which is interrupted

    job = bench.push("call")
    bench.work()
    assert (bench.ran, bench.counts()) == (["x"], (0, 1, 0, 0))
    assert [type(event) for event in bench.events if getattr(event, "id", "") == job.id].count(JobReleased) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"limit": 0, "per": 1}, "throttles_exceptions: limit 0"),
        ({"limit": 1, "per": 0}, "throttles_exceptions: per 0"),
        ({"limit": 1, "per": 1, "retry_after": 0}, "throttles_exceptions: retry_after 0"),
        ({"limit": 1, "per": 1, "when": ValueError()}, "throttles_exceptions: when ValueError.*: expected a function"),
    ],
)
def test_a_breaker_that_makes_no_sense_is_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidError, match=what):
        throttles_exceptions(**options)  # type: ignore[arg-type]
