"""S1, S2, S3, S6: the ends of a delivery."""

from __future__ import annotations

import copy
from datetime import timedelta
from itertools import permutations, product
from typing import TYPE_CHECKING

import attrs

from hesape import errors
from hesape.jobs import key_of
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.order import numbers
from hesape_conformance.trial import READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job
    from hesape_conformance.trial import Trial

KINDS: dict[str, Callable[[Job], None]] = {
    "delete": lambda job: job.delete(),
    "release": lambda job: job.release(60),
    "fail": lambda job: job.fail("Boom: first"),
}


def flags(job: Job) -> tuple[bool, bool, bool, bool]:
    """Released, deleted, failed, settled."""
    return job.is_released, job.is_deleted, job.has_failed, job.is_settled


@rule("S1", "Delete removes the job, and nothing else")
def delete(trial: Trial) -> None:
    trial.push_many(3)
    job = trial.take()
    assert flags(job) == (False, False, False, False)
    job.delete()
    assert flags(job) == (False, True, False, True)
    assert job.id not in trial.rows()
    assert numbers(trial.queue.pop(n=5)) == [1, 2]


@rule("S1", "Release puts it back, due after its delay, one attempt spent")
def release(trial: Trial) -> None:
    for delay in (0.1, timedelta(seconds=0.1)):
        job = trial.taken()
        before = trial.driver.now()
        job.release(delay)
        assert flags(job) == (True, False, False, True)
        due = trial.peek().next_due_us
        assert due is not None
        assert before + 100_000 <= due <= trial.driver.now() + 100_000
        assert trial.tally() == (0, 1, 0, 0)
        trial.until(due)
        again = trial.take()
        assert (again.id, again.attempts) == (job.id, 2)
        again.delete()


@rule("S1", "A release that isn't spent gives its attempt back")
def unspent(trial: Trial) -> None:
    trial.push()
    for _ in range(3):
        job = trial.take()
        assert job.attempts == 1
        job.release(spent=False)
        assert trial.row(job)["attempts"] == 0
    trial.take().release()
    job = trial.take()
    assert job.attempts == 2
    job.release(0.02, spent=False)
    trial.until(trial.driver.now() + 50_000)
    assert trial.take().attempts == 2


@rule("S1", "Release and fail keep the job's last error and its exceptions")
def errors_kept(trial: Trial) -> None:
    job = trial.taken()
    job.last_error, job.exceptions = "Boom: 1\n\nté", 1
    job.release()
    job = trial.take()
    assert (job.last_error, job.exceptions) == ("Boom: 1\n\nté", 1)
    job.release()
    job = trial.take()
    assert (job.last_error, job.exceptions) == ("Boom: 1\n\nté", 1)
    job.exceptions = 2
    job.fail()
    row = trial.row(job)
    assert (row["last_error"], row["exceptions"]) == ("Boom: 1\n\nté", 2)
    job = trial.taken()
    job.last_error, job.exceptions = "Old: error", 3
    job.fail(ValueError("new"))
    row = trial.row(job)
    assert (row["last_error"] or "").startswith("ValueError: new\n\n")
    assert row["exceptions"] == 3
    job = trial.taken()
    job.fail()
    assert trial.row(job)["last_error"] is None


@rule("S1", "Fail parks the job: it is delivered no more, and listed with its cause")
def fail(trial: Trial) -> None:
    job = trial.taken()
    job.fail("Boom: it broke")
    assert flags(job) == (False, True, True, True)
    assert trial.queue.pop() == []
    assert trial.tally() == (0, 0, 0, 1)
    [found] = trial.queue.failed(trial.grant(action=READ))
    assert (found.id, found.last_error, found.attempts) == (job.id, "Boom: it broke", 1)
    assert trial.driver.rescue() == 0
    assert trial.row(job)["state"] == "failed"


@rule("S1", "Flags change once the store has accepted, never before")
def flags_follow(trial: Trial) -> None:
    for kind, settle in KINDS.items():
        job = trial.lapsed(queue=kind)
        with raises(errors.LeaseLostError):
            settle(job)
        assert flags(job) == (False, False, False, False), kind


@rule("S2", "The same settlement again does nothing, another is refused, for every pair")
def pairs(trial: Trial) -> None:
    for first, second in product(KINDS, KINDS):
        job = trial.taken(queue="pairs")
        KINDS[first](job)
        before = flags(job)
        with trial.unchanged():
            if first == second:
                KINDS[second](job)
            else:
                with raises(errors.AlreadySettledError, first, second):
                    KINDS[second](job)
        assert flags(job) == before
        trial.queue.operator().clear("pairs")
        trial.queue.operator().flush()


@rule("S2", "Of two calls of one kind the first arguments stand")
def first_stands(trial: Trial) -> None:
    job = trial.taken()
    job.release(60)
    job.release(0)
    job.release(0, spent=False)
    assert trial.tally() == (0, 1, 0, 0)
    assert trial.row(job)["attempts"] == 1
    job = trial.taken()
    job.fail("First: cause")
    job.fail("Second: cause")
    assert trial.row(job)["last_error"] == "First: cause"


@rule("S2", "A settled job settles no later delivery of itself")
def no_later(trial: Trial) -> None:
    for first, second in permutations(KINDS, 2):
        job = trial.taken(queue="later")
        if first == "release":
            job.release()
        elif first == "fail":
            job.fail("Boom")
            trial.queue.operator().retry(job.id)
        else:
            continue
        again = trial.take("later")
        with trial.unchanged():
            with raises(errors.AlreadySettledError):
                KINDS[second](job)
            KINDS[first](job)
        again.delete()


@rule("S2", "What never came off a queue, and a copy of what did, can't settle")
def detached(trial: Trial) -> None:
    pushed = trial.push()
    job = trial.take()
    strangers = [trial.job(), pushed, copy.copy(job), copy.deepcopy(job), attrs.evolve(job)]
    with trial.unchanged():
        for stranger in strangers:
            for settle in KINDS.values():
                with raises(errors.DetachedError):
                    settle(stranger)
            with raises(errors.DetachedError):
                stranger.extend(5)
            with raises(errors.DetachedError):
                stranger.record()
            assert flags(stranger) == (False, False, False, False)
    job.delete()


@rule("S3", "Many deletes settle together, and the lost ones are named")
def many(trial: Trial) -> None:
    trial.push_many(8)
    jobs = trial.queue.pop(n=8, lease=0.4)
    kept = jobs[:5]
    trial.driver.extend(kept, 60)
    kept[0].release(60)
    trial.outlive(jobs[7])
    taken = trial.queue.pop(n=2)
    assert numbers(taken) == [5, 6]
    lost = trial.driver.delete_jobs(jobs)
    assert lost == [kept[0], *jobs[5:]]
    assert trial.rows().keys() == {kept[0].id, *(job.id for job in jobs[5:])}
    assert trial.driver.delete_jobs([]) == []


@rule("S3", "A thousand go at once, and a repeat says that they are gone")
def thousand(trial: Trial) -> None:
    trial.push_many(1000)
    jobs = trial.queue.pop(n=1000)
    assert trial.driver.delete_jobs(jobs[:500]) == []
    assert len(trial.rows()) == 500
    assert trial.driver.delete_jobs(jobs) == jobs[:500]
    assert trial.rows() == {}


@rule("S3", "Nothing of one tenant or queue is deleted for another")
def across(trial: Trial) -> None:
    jobs = [trial.taken(queue=f"q{n}", tenant=f"t{n}") for n in range(4)]
    assert trial.driver.delete_jobs(jobs[::2]) == []
    assert trial.rows().keys() == {jobs[1].id, jobs[3].id}


@rule("S6", "Marking as failed sets a flag alone: no I/O, nothing settled, detached or not")
def marked(trial: Trial) -> None:
    job = trial.taken()
    detached_job = trial.job()
    with trial.unchanged():
        trial.driver.close()
        for each in (job, detached_job):
            each.mark_as_failed()
            assert flags(each) == (False, False, True, False)
    assert key_of(job).id == job.id
    job.delete()
    assert flags(job) == (False, True, True, True)
    assert trial.rows() == {}
