"""I2: pushes of unknown outcome, and unique keys."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually, raises
from hesape_conformance.faulty import Faulty, impatient
from hesape_conformance.trial import OTHER_TENANT, RETRY, attributes

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial

LASTING = attributes(unique_for=60)


@rule("I2", "A push whose answer was lost is repeated under its id, and stored once")
def repeated_push(trial: Trial) -> None:
    for error in (errors.OutcomeUnknownError, errors.StoreUnavailableError, errors.StoreBusyError):
        with Faulty(trial.driver, "_store", error, after=True) as faulty:
            job = trial.push(attributes=attributes(unique_for=60, unique_key=error.__name__))
        assert faulty.calls == 2
        assert trial.take().id == job.id
        assert trial.queue.pop() == []


@rule("I2", "When the outcome stays unknown the error says so, and pushing again under the same id is harmless")
def stays_unknown(trial: Trial) -> None:
    job = trial.job({"n": 1})
    with impatient(0.4), Faulty(trial.driver, "_store", errors.OutcomeUnknownError, after=True, times=10**9):
        with raises(errors.OutcomeUnknownError) as caught:
            trial.queue.push(trial.grant(), job)
        assert caught.error.retryable
    trial.queue.push(trial.grant(), job)
    assert trial.take().id == job.id
    assert trial.queue.pop() == []


@rule("I2", "A unique key is held by name and payload, within the tenant; the same id passes")
def default_key(trial: Trial) -> None:
    job = trial.push({"n": 1}, attributes=LASTING)
    with trial.unchanged():
        same: tuple[dict[str, Any], ...] = ({}, {"queue": "other"}, {"priority": 1}, {"display_name": "Other"})
        for options in same:
            with raises(errors.AlreadyQueuedError):
                trial.push({"n": 1}, attributes=LASTING, **options)
        trial.push({"n": 1}, attributes=LASTING, id=job.id)
    trial.push({"n": 2}, attributes=LASTING)
    trial.push({"n": 1}, name="other", attributes=LASTING)
    trial.push({"n": 1}, tenant=OTHER_TENANT, attributes=LASTING)
    trial.push({"n": 1})
    assert len(trial.rows()) == 5


@rule("I2", "A key of one's own is held across names and payloads")
def own_key(trial: Trial) -> None:
    keyed = attributes(unique_for=60, unique_key="month-2031-07")
    trial.push({"n": 1}, attributes=keyed)
    with trial.unchanged(), raises(errors.AlreadyQueuedError):
        trial.push({"n": 2}, name="other", attributes=keyed)


@rule("I2", "The key outlives the job, however it ended, also against a late repeat, and lets its own retry pass")
def outlives(trial: Trial) -> None:
    for end in ("delete", "fail", "release", "clear"):
        keyed = attributes(unique_for=60, unique_key=end)
        job = trial.push(queue=end, attributes=keyed)
        popped = trial.take(end)
        if end == "clear":
            trial.queue.operator().clear(end)
        else:
            getattr(popped, end)()
        with raises(errors.AlreadyQueuedError):
            trial.push(queue=end, attributes=keyed)
        if end == "fail":
            trial.queue.retry(trial.grant(action=RETRY), job.id)
            assert trial.take(end).id == job.id
        if end in {"delete", "clear"}:  # the gap that the key closes: the job is settled, and a late repeat comes
            with raises(errors.AlreadyQueuedError):
                trial.push(queue=end, attributes=keyed, id=job.id)
        else:
            trial.push(queue=end, attributes=keyed, id=job.id)


@rule("I2", "The key is free again when its time is over, by the store's clock")
def expires(trial: Trial) -> None:
    brief = attributes(unique_for=0.3, unique_key="brief")
    before = trial.driver.now()
    first = trial.push(attributes=brief)

    def again() -> Any:
        try:
            return trial.push(attributes=brief)
        except errors.AlreadyQueuedError:
            return None

    second = eventually(again, "the key is free")
    assert trial.driver.now() - before >= 300_000
    assert [trial.take().id, trial.take().id] == [first.id, second.id]
    with raises(errors.AlreadyQueuedError):  # the second push holds it anew
        trial.push(attributes=attributes(unique_for=60, unique_key="brief"))


@rule("I2", "A push that stores nothing holds no key")
def atomic(trial: Trial) -> None:
    held = trial.push(attributes=attributes(unique_for=60, unique_key="held"))
    free = attributes(unique_for=60, unique_key="free")
    with trial.unchanged():
        with raises(errors.DuplicateJobError) as duplicate:
            trial.queue.bulk(trial.grant(), [trial.job(attributes=free), trial.job({"x": 1}, id=held.id)])
        with raises(errors.AlreadyQueuedError) as queued:
            trial.queue.bulk(trial.grant(), [trial.job(attributes=free), trial.job(attributes=held.attributes)])
        assert (duplicate.error.index, queued.error.index) == (1, 1)
    trial.push(attributes=free)


@rule("I2", "Two jobs of one bulk can't hold the same key")
def within_bulk(trial: Trial) -> None:
    with raises(errors.AlreadyQueuedError) as caught:
        trial.queue.bulk(trial.grant(), [trial.job(), trial.job(attributes=LASTING), trial.job(attributes=LASTING)])
    assert caught.error.index == 2
    assert trial.rows() == {}
    trial.push(attributes=LASTING)


@rule("I2", "Of many pushes of one key at once exactly one is stored")
def at_once(trial: Trial) -> None:
    for turn in range(trial.times(3, 20, 100)):
        keyed = attributes(unique_for=60, unique_key=f"turn {turn}")
        with ThreadPoolExecutor(6) as pool:
            ends = [pool.submit(trial.push, attributes=keyed) for _ in range(6)]
            lost = [type(error) for end in ends if (error := end.exception(30))]
        assert lost == [errors.AlreadyQueuedError] * 5
    assert len(trial.rows()) == trial.times(3, 20, 100)
