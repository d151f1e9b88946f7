"""I1: ids are the application's, and pushing one again is harmless."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape.envelope import Keys
from hesape.jobs import Job
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.trial import NAME, OTHER_TENANT, TENANT, ahead, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape_conformance.trial import Trial


def states(trial: Trial) -> dict[str, Callable[[Job], object]]:
    """How to bring a pushed job, the only one of its queue, into each state."""

    def expire(job: Job) -> None:
        trial.outlive(trial.take(job.queue, lease=0.02))

    return {
        "pending": lambda job: job,
        "reserved": lambda job: trial.take(job.queue),
        "expired": expire,
        "delayed": lambda job: trial.take(job.queue).release(60),
        "released": lambda job: trial.take(job.queue).release(),
        "failed": lambda job: trial.take(job.queue).fail("Boom"),
    }


def twin(trial: Trial, job: Job, payload: object = None, *, tenant: str = TENANT, **options: Any) -> Job:
    """Another job of the same id."""
    options.setdefault("queue", job.queue)
    return trial.job(payload, tenant=tenant, id=job.id, **options)


@rule("I1", "The same id with the same content stores nothing new and changes nothing, in every state")
def same_content(trial: Trial) -> None:
    for state, bring in states(trial).items():
        job = trial.push({"n": 1}, queue=state)
        bring(job)
        with trial.unchanged():
            assert trial.queue.push(trial.grant(), twin(trial, job, {"n": 1})).id == job.id
            trial.queue.later(trial.grant(), 30, twin(trial, job, {"n": 1}))
            trial.another().bulk(trial.grant(), [twin(trial, job, {"n": 1})] * 2)
    assert len(trial.rows()) == len(states(trial))


@rule("I1", "Due time, priority and seal are no content")
def no_content(trial: Trial) -> None:
    job = trial.push({"n": 1}, priority=7)
    signed = trial.signed(Keys(secrets={"k1": b"1" * 32}, sealing="k1"))
    with trial.unchanged():
        trial.queue.push(trial.grant(), twin(trial, job, {"n": 1}, priority=8, run_at=ahead(50)))
        signed.push(trial.grant(), twin(trial, job, {"n": 1}))
    sealed = signed.push(trial.grant(), trial.job({"n": 2}))
    with trial.unchanged():
        trial.queue.push(trial.grant(), twin(trial, sealed, {"n": 2}))


@rule("I1", "The same id with any other content, or for another tenant, is refused and changes nothing, in every state")
def other_content(trial: Trial) -> None:
    for state, bring in states(trial).items():
        job = trial.push({"n": 1}, queue=state)
        bring(job)
        others = [
            twin(trial, job, {"n": 2}),
            twin(trial, job, {"n": 1.0}),
            twin(trial, job, {"n": 1}, name="other"),
            twin(trial, job, {"n": 1}, queue="other"),
            twin(trial, job, {"n": 1}, display_name="Other"),
            twin(trial, job, {"n": 1}, attributes=attributes(tries=9)),
        ]
        with trial.unchanged():
            for other in others:
                with raises(errors.DuplicateJobError, job.id):
                    trial.queue.push(trial.grant(), other)
            with raises(errors.DuplicateJobError, job.id):
                trial.queue.push(trial.grant(OTHER_TENANT), twin(trial, job, {"n": 1}, tenant=OTHER_TENANT))
            another_action = trial.grant(action="other")
            with raises(errors.DuplicateJobError):
                trial.queue.push(another_action, Job.new(another_action, NAME, {"n": 1}, queue=state, id=job.id))


@rule("I1", "In a bulk it holds job by job: what is stored passes, what differs stops all and names its index")
def in_bulk(trial: Trial) -> None:
    stored = trial.push({"n": 0})
    fresh = [trial.job({"n": n}) for n in range(1, 4)]
    trial.queue.bulk(trial.grant(), [fresh[0], twin(trial, stored, {"n": 0}), fresh[1]])
    assert [job.id for job in trial.queue.pop(n=9)] == [stored.id, fresh[0].id, fresh[1].id]
    with trial.unchanged():
        for wrong in (twin(trial, stored, {"n": 9}), twin(trial, fresh[0], {"n": 9})):
            with raises(errors.DuplicateJobError) as caught:
                trial.queue.bulk(trial.grant(), [fresh[2], wrong])
            assert caught.error.index == 1


@rule("I1", "An id repeated inside a bulk is stored once with the same content, and refused by its index with another")
def repeated_in_bulk(trial: Trial) -> None:
    one, two = trial.job({"n": 1}), trial.job({"n": 2})
    found = trial.queue.bulk(trial.grant(), [one, two, twin(trial, one, {"n": 1})])
    assert [job.id for job in found] == [one.id, two.id, one.id]
    assert [job.id for job in trial.queue.pop(n=9)] == [one.id, two.id]
    three = trial.job({"n": 3})
    with trial.unchanged(), raises(errors.DuplicateJobError) as caught:
        trial.queue.bulk(trial.grant(), [trial.job(), three, trial.job(), twin(trial, three, {"n": 4})])
    assert caught.error.index == 3


@rule("I1", "After the job is gone its id may be used again")
def after_the_end(trial: Trial) -> None:
    job = trial.taken()
    job.delete()
    trial.queue.push(trial.grant(), twin(trial, job, {"other": True}))
    assert trial.take().attempts == 1


@rule("I1", "One id pushed by many threads at once is stored once")
def at_once(trial: Trial) -> None:
    for _ in range(trial.times(3, 20, 100)):
        job = trial.job({"n": 1})
        with ThreadPoolExecutor(6) as pool:
            for push in [pool.submit(trial.queue.push, trial.grant(), twin(trial, job, {"n": 1})) for _ in range(6)]:
                assert push.result(30).id == job.id
        assert trial.take().id == job.id
        assert trial.queue.pop() == []
        with ThreadPoolExecutor(4) as pool:
            different = [twin(trial, other := trial.job(), {"n": 0})]
            different += [twin(trial, other, {"n": n}) for n in range(1, 4)]
            ends = [pool.submit(trial.queue.push, trial.grant(), each) for each in different]
            lost = [end.exception(30) for end in ends]
        assert [type(error) for error in lost if error] == [errors.DuplicateJobError] * 3
        assert trial.take().id == other.id


@rule("I1", "An id is the canonical text of a UUID, by default of version 7 and growing; other shapes are refused")
def shapes(trial: Trial) -> None:
    ids = [trial.job().id for _ in range(200)]
    assert ids == sorted(set(ids))
    assert {uuid.UUID(job_id).version for job_id in ids} == {7}
    for good in ("00000000-0000-0000-0000-000000000000", str(uuid.uuid4()), str(uuid.uuid5(uuid.NAMESPACE_DNS, "x"))):
        trial.push(id=good)
        assert trial.take().id == good
    given = uuid.uuid4()
    assert trial.push(id=given).id == str(given)
    wrong: tuple[Any, ...] = (
        "",
        "x",
        str(given).upper(),
        f"{{{given}}}",
        given.hex,
        f" {given}",
        f"{given}\n",
        7,
        b"x",
    )
    for job_id in wrong:
        with raises(errors.IdInvalidError):
            trial.job(id=job_id)
        job = trial.job()
        job.id = job_id
        with raises(errors.IdInvalidError):
            trial.queue.push(trial.grant(), job)
