"""T1, T2, T3: moments, the store's clock, and delays."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from hesape import errors, times
from hesape.driver import Capability, Fact
from hesape.jobs import attached
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.trial import NAME, READ, RETRY, attributes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape.jobs import Job
    from hesape_conformance.trial import Trial

ZONES = ("America/New_York", "Pacific/Kiritimati", "Asia/Kathmandu", "UTC")
HOUR_US = 3_600_000_000


@contextmanager
def local_zone(name: str) -> Iterator[None]:
    """This process in another time zone."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()


@rule("T1", "A naive time is refused when the job is built, and when it was written on the job")
def naive(trial: Trial) -> None:
    wrong: Any
    for wrong in (datetime(2031, 7, 1, 12), datetime.now(), "2031-07-01", 1_900_000_000):  # noqa: DTZ001, DTZ005 - naive on purpose
        with raises(errors.TimeInvalidError):
            trial.job(run_at=wrong)
        with raises(errors.TimeInvalidError):
            trial.queue.push_raw(trial.grant(), NAME, b"{}", run_at=wrong)
        with raises(errors.TimeInvalidError):
            attributes(retry_until=wrong)
        job = trial.job()
        job.run_at = wrong
        with raises(errors.TimeInvalidError):
            trial.queue.push(trial.grant(), job)
    assert trial.rows() == {}


@rule("T1", "A time comes back to the microsecond, as the same instant, from every zone and both folds")
def exact(trial: Trial) -> None:
    new_york = ZoneInfo("America/New_York")
    base = times.from_us(trial.driver.now() + 150_000)
    moments = [
        base,
        base + timedelta(microseconds=1),
        base.astimezone(timezone(timedelta(hours=-11, minutes=-30))),
        base.astimezone(ZoneInfo("Asia/Kathmandu")),
        base.astimezone(new_york),
    ]
    for zone in ZONES:
        with local_zone(zone):
            for moment in moments:
                trial.push(run_at=moment, attributes=attributes(retry_until=moment))
    trial.until(times.to_us(max(moments)))
    found = trial.queue.pop(n=len(moments) * len(ZONES))
    until = [job.attributes.retry_until for job in found]
    assert sorted(until) == sorted(moments * len(ZONES))  # type: ignore[type-var]
    now = times.from_us(trial.driver.now())
    for job in found:
        assert job.run_at is not None
        wanted = job.attributes.retry_until
        assert wanted is not None
        # A run_at that was past when it was pushed became the store's now (O1); the others stay exactly.
        assert job.run_at == wanted or wanted < job.run_at < now
    folds = [datetime(2031, 11, 2, 1, 30, fold=fold, tzinfo=new_york) for fold in (0, 1)]
    stored = [trial.push(run_at=moment).run_at for moment in folds]
    assert stored == [datetime(2031, 11, 2, 5, 30, tzinfo=UTC), datetime(2031, 11, 2, 6, 30, tzinfo=UTC)]


@rule("T1", "A future time is kept to the microsecond")
def future_exact(trial: Trial) -> None:
    for microsecond in (1, 499_999, 500_001, 999_999):
        moment = times.from_us(trial.driver.now() + 50_000_000).replace(microsecond=microsecond)
        trial.push(run_at=moment, queue="soon")
        assert trial.peek(["soon"]).next_due_us == times.to_us(moment)
        trial.queue.operator().clear("soon")


@rule("T2", "A pop learns the store's time and when the next job falls due, paused queues left out")
def next_due(trial: Trial) -> None:
    before = trial.driver.now()
    found = trial.peek()
    assert before <= found.now_us <= trial.driver.now()
    assert found.next_due_us is None
    trial.push(delay=600)
    trial.push(delay=300)
    trial.push(delay=100, queue="other")
    trial.push(delay=50, queue="closed")
    trial.queue.operator().pause("closed")
    for queues, delay in ((["default"], 300), (["default", "other"], 100), (["closed", "default"], 300)):
        found = trial.peek(queues)
        assert found.next_due_us is not None
        assert abs(found.next_due_us - before - delay * 1_000_000) < 5_000_000
    assert trial.peek(["closed"]).next_due_us is None


@rule("T2", "Due times, leases and failures are told by one clock, the store's")
def one_clock(trial: Trial) -> None:
    before = trial.driver.now()
    trial.push()
    job = trial.take(lease=60)
    after = trial.driver.now()
    due, deadline = times.to_us(job.run_at or datetime.now(UTC)), attached(job).reserved_until_us
    assert before <= due <= after
    assert deadline is not None
    assert before + 60_000_000 <= deadline <= after + 60_000_000
    before = trial.driver.now()
    job.fail("Boom")
    [failed] = trial.queue.failed(trial.grant(action=READ))
    assert before <= times.to_us(failed.failed_at) <= trial.driver.now()
    assert due <= times.to_us(failed.pushed_at) + 1 <= before
    clock = [trial.driver.now() for _ in range(20)]
    assert clock == sorted(clock)


@rule("T2", "A client whose clock is an hour off neither delays nor hastens anything", facts=[Fact.NETWORKED])
def wrong_client_clock(trial: Trial) -> None:
    for shift in (3600.0, -3600.0):
        child = trial.child("wrong_clock", "acme", clock_s=shift)
        there_us, soon, taken, later, their_clock = child.answer()
        here_us = trial.driver.now()
        assert abs(their_clock - time.time() - shift) < 60, "the child's clock isn't wrong"
        assert abs(there_us - here_us) < 10_000_000, "now() tells the client's clock"
        assert taken == [soon], "an immediate job wasn't due at once"
        counts = trial.queue.counts()
        assert (counts.delayed, counts.reserved) == (1, 1)
        next_due = trial.peek().next_due_us
        assert next_due is not None
        assert abs(next_due - there_us - 3_000_000) < 2_000_000
        trial.until(next_due)
        assert trial.take().id == later
        assert trial.queue.counts().reserved == 2, "the client's clock decided about a lease"
        trial.queue.operator().clear("default")


@rule("T2", "In a lent transaction now is the statement's own", capability=Capability.TRANSACTIONS)
def statement_clock(trial: Trial) -> None:
    loan = trial.lend()
    loan.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 1}), tx=loan.connection)
    start = trial.driver.now()
    trial.until(start + 300_000)
    trial.queue.push(trial.grant(), trial.job({"n": 2}), tx=loan.connection)
    loan.commit()
    jobs = trial.queue.pop(n=2)
    due = [times.to_us(job.run_at) for job in jobs if job.run_at]
    assert [job.decode()["n"] for job in jobs] == [1, 2]
    assert due[0] <= start + 50_000
    assert due[1] >= start + 300_000


@rule("T2", "A retry moves retry_until by the store's time since the push")
def retry_until(trial: Trial) -> None:
    until = times.from_us(trial.driver.now() + HOUR_US)
    job = trial.push(attributes=attributes(retry_until=until))
    popped = trial.take()
    assert popped.retry_until == until
    popped.fail("Boom")
    [failed] = trial.queue.failed(trial.grant(action=READ))
    trial.until(times.to_us(failed.pushed_at) + 200_000)
    trial.queue.retry(trial.grant(action=RETRY), job.id)
    again = trial.take()
    assert again.attributes.retry_until == until
    assert again.retry_until is not None
    assert timedelta(seconds=0.2) <= again.retry_until - until < timedelta(seconds=20)


@rule("T3", "A delay is seconds or a timedelta, by the store's clock, in any zone")
def delays(trial: Trial) -> None:
    cases = ((1800, 1800.0), (0.25, 0.25), (timedelta(hours=2), 7200.0), (timedelta(days=400), 400 * 86400.0))
    for zone in ZONES:
        with local_zone(zone):
            for delay, seconds in cases:
                before = trial.driver.now()
                trial.push(delay=delay, queue="soon")
                due = trial.peek(["soon"]).next_due_us
                assert due is not None
                assert before <= due - round(seconds * 1e6) <= trial.driver.now()
                trial.queue.operator().clear("soon")


@rule("T3", "Zero and negative mean now, for a push and for a release")
def now_or_past(trial: Trial) -> None:
    for delay in (0, -1, -0.001, -1e12, timedelta(seconds=-5), timedelta(0), timedelta.min):
        with local_zone("America/New_York"):
            before = trial.driver.now()
            trial.queue.later(trial.grant(), delay, trial.job())
            job = trial.take()
            assert before <= _due_us(job) <= trial.driver.now()
            before = trial.driver.now()
            job.release(delay)
            job = trial.take()
            assert before <= _due_us(job) <= trial.driver.now()
            job.delete()


def _due_us(job: Job) -> int:
    assert job.run_at is not None
    return times.to_us(job.run_at)


@rule("T3", "What isn't a duration is refused, and nothing is stored")
def wrong_delays(trial: Trial) -> None:
    job = trial.taken()
    wrong: Any
    with trial.unchanged():
        for wrong in (float("nan"), float("inf"), "5", None, True, 1e18, timedelta.max, datetime.now(UTC), [1]):
            with raises(errors.TimeInvalidError):
                trial.queue.later(trial.grant(), wrong, trial.job())
            with raises(errors.TimeInvalidError):
                job.release(wrong)
            with raises(errors.TimeInvalidError):
                job.extend(wrong)
            with raises(errors.TimeInvalidError):
                trial.queue.pop(lease=wrong)
    assert not job.is_settled
    job.delete()


@rule("T3", "A delay of a century fits")
def century(trial: Trial) -> None:
    before = trial.driver.now()
    trial.push(delay=times.MAX_DELAY_S)
    due = trial.peek().next_due_us
    assert due is not None
    assert due - before >= times.MAX_DELAY_S * 1e6
    job = trial.taken(queue="other")
    job.release(times.MAX_DELAY_S)
    assert trial.tally("other") == (0, 1, 0, 0)
