"""C1, C2, B1: how many there are, and many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import errors, times
from hesape.jobs import Job
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.order import numbers
from hesape_conformance.trial import NAME, RETRY, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape_conformance.trial import Trial

MAX_PAYLOAD, MAX_BULK_JOBS, MAX_BULK_BYTES = 32_768, 10_000, 16 * 1024 * 1024
"""The contract's numbers, not what the core under test takes for them."""


@rule("C1", "Counts add up at every step of a job's life")
def every_step(trial: Trial) -> None:
    assert trial.tally() == (0, 0, 0, 0)
    trial.push()
    assert trial.tally() == (1, 0, 0, 0)
    trial.push(delay=60)
    assert trial.tally() == (1, 1, 0, 0)
    job = trial.take()
    assert trial.tally() == (0, 1, 1, 0)
    job.release(60)
    assert trial.tally() == (0, 2, 0, 0)
    job = trial.taken()
    job.release()
    assert trial.tally() == (1, 2, 0, 0)
    job = trial.take(lease=0.02)
    trial.outlive(job)
    assert trial.tally() == (1, 2, 0, 0)
    job = trial.take()
    job.fail("Boom")
    assert trial.tally() == (0, 2, 0, 1)
    trial.queue.retry(trial.grant(action=RETRY), job.id)
    assert trial.tally() == (1, 2, 0, 0)
    trial.take().delete()
    assert trial.tally() == (0, 2, 0, 0)


@rule("C1", "A job that became due is pending without anybody having claimed")
def became_due(trial: Trial) -> None:
    trial.push(delay=0.1)
    moment = trial.peek().next_due_us
    assert moment is not None
    assert trial.tally() == (0, 1, 0, 0) or trial.driver.now() >= moment
    trial.until(moment)
    assert trial.tally() == (1, 0, 0, 0)
    assert trial.queue.oldest_pending() == times.from_us(moment)


@rule("C1", "The oldest pending is when the waiting job that waits longest became due; nobody waits: None")
def oldest(trial: Trial) -> None:
    assert trial.queue.oldest_pending() is None
    trial.push(delay=60)
    assert trial.queue.oldest_pending() is None
    before = trial.driver.now()
    trial.push(priority=200)
    after = trial.driver.now()
    trial.push(priority=1)
    found = trial.queue.oldest_pending()
    assert found is not None
    assert before <= times.to_us(found) <= after
    urgent = trial.take()
    assert trial.queue.oldest_pending() == found
    first = trial.take(lease=0.1)
    assert first.run_at == found
    deadline = first.record().reserved_until
    assert deadline is not None
    assert trial.queue.oldest_pending() is None or trial.driver.now() >= times.to_us(deadline)
    trial.outlive(first)
    assert trial.queue.oldest_pending() == found
    urgent.fail("Boom")
    trial.take().delete()
    assert trial.queue.oldest_pending() is None


@rule("C1", "Queues are counted apart, and named while they hold anything, the failed included")
def apart(trial: Trial) -> None:
    for queue in ("b", "a", "B"):
        trial.push(queue=queue)
    assert trial.queue.queues() == ["B", "a", "b"]
    trial.take("a").fail("Boom")
    trial.take("b").delete()
    assert trial.queue.queues() == ["B", "a"]
    assert [trial.tally(queue) for queue in ("a", "b", "B", "none")] == [
        (0, 0, 0, 1),
        (0, 0, 0, 0),
        (1, 0, 0, 0),
        (0, 0, 0, 0),
    ]
    trial.queue.operator().flush()
    assert trial.queue.queues() == ["B"]


@rule("C2", "Clearing removes pending, delayed and reserved, keeps the failed and other queues, and counts")
def clear(trial: Trial) -> None:
    failed = trial.parked()
    trial.push_many(4)
    trial.push(delay=60)
    flight = trial.take()
    lapsing = trial.take(lease=0.02)
    trial.outlive(lapsing)
    kept = trial.push(queue="other")
    assert trial.queue.operator().clear("default") == 5
    assert trial.rows().keys() == {failed.id, kept.id}
    assert trial.tally() == (0, 0, 0, 1)
    assert trial.queue.pop(n=9) == []
    for settle in (flight.delete, flight.release, lambda: flight.fail("x"), lambda: flight.extend(5)):
        with raises(errors.LeaseLostError):
            settle()
    assert trial.queue.operator().clear("default") == 0
    assert trial.queue.operator().clear("never-used") == 0
    assert trial.queue.pop("other")[0].id == kept.id


@rule("C2", "What is pushed after a clear is new, also under an id that was cleared")
def pushed_after(trial: Trial) -> None:
    job = trial.taken()
    trial.queue.operator().clear("default")
    trial.push({"other": 1}, id=job.id)
    with trial.unchanged(), raises(errors.LeaseLostError):
        job.delete()
    assert trial.take().attempts == 1


@rule("B1", "A bulk is stored in the order given, and returned so")
def whole(trial: Trial) -> None:
    jobs = [trial.job({"n": n}) for n in range(trial.times(30, 700, 3000))]
    returned = trial.queue.bulk(trial.grant(), iter(jobs))
    assert [job.id for job in returned] == [job.id for job in jobs]
    assert {job.queue for job in returned} == {"default"}
    found: list[Job] = []
    while part := trial.queue.pop(n=1000):
        found += part
    assert numbers(found) == list(range(len(jobs)))
    assert trial.queue.bulk(trial.grant(), []) == []


@rule("B1", "One bad job, wherever it stands, stores none, and its error is its own class with its index")
def one_bad(trial: Trial) -> None:
    stored = trial.push({"n": 1})
    trial.push(attributes=attributes(unique_for=60, unique_key="held"))

    def edited(field: str, value: object) -> Job:
        job = trial.job()
        setattr(job, field, value)
        return job

    bad: list[tuple[type[errors.HesapeError], Callable[[], Job]]] = [
        (errors.ForgedError, lambda: edited("tenant", "globex")),
        (errors.NoNameError, lambda: edited("name", "")),
        (errors.PayloadTooLargeError, lambda: edited("payload", b"1" * (MAX_PAYLOAD + 1))),
        (errors.PayloadInvalidError, lambda: edited("payload", b"{")),
        (errors.NameInvalidError, lambda: edited("queue", "no good")),
        (errors.PriorityInvalidError, lambda: edited("priority", 40_000)),
        (errors.IdInvalidError, lambda: edited("id", "x")),
        (errors.TimeInvalidError, lambda: edited("run_at", "now")),
        (errors.DuplicateJobError, lambda: trial.job({"n": 2}, id=stored.id)),
        (errors.AlreadyQueuedError, lambda: trial.job(attributes=attributes(unique_for=60, unique_key="held"))),
    ]
    for kind, make in bad:
        for size, index in ((5, 0), (5, 2), (5, 4), (600, 599)):
            jobs = [trial.job() for _ in range(size)]
            jobs[index] = make()
            with trial.unchanged(), raises(kind) as caught:
                trial.queue.bulk(trial.grant(), jobs)
            assert caught.error.index == index, kind.__name__


@rule("B1", "A bulk over 10,000 jobs or 16 MiB is refused before any I/O; up to there it is stored")
def limits(trial: Trial) -> None:
    grant = trial.grant()
    jobs = [Job.new(grant, NAME) for _ in range(MAX_BULK_JOBS + 1)]
    big = "x" * (MAX_PAYLOAD - 2)
    heavy = [Job.new(grant, NAME, big) for _ in range(MAX_BULK_BYTES // MAX_PAYLOAD)]
    for queue in (trial.queue, trial.without_store()):
        with raises(errors.BulkTooLargeError, MAX_BULK_JOBS):
            queue.bulk(grant, jobs)
        with raises(errors.BulkTooLargeError, MAX_BULK_BYTES):
            queue.bulk(grant, heavy)
    assert trial.rows() == {}
    most = trial.times(1_000, MAX_BULK_JOBS, MAX_BULK_JOBS)
    trial.queue.bulk(grant, jobs[:most])
    assert trial.tally() == (most, 0, 0, 0)
    trial.queue.operator().clear("default")
    fitting = heavy[: trial.times(50, len(heavy) - 8, len(heavy) - 8)]
    trial.queue.bulk(grant, fitting)
    assert trial.tally() == (len(fitting), 0, 0, 0)


@rule("B1", "A priority out of its range, or no whole number, is refused")
def priorities(trial: Trial) -> None:
    for wrong in (-32769, 32768, 2**40, 1.5, "1", True):
        with raises(errors.PriorityInvalidError):
            trial.job(priority=wrong)
    for good in (-32768, 32767, 0):
        assert trial.push(priority=good).priority == good
