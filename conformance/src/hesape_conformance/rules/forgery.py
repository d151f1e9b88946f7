"""G2, G4, G6: what a push refuses, fills in and keeps out, on every door."""

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import hesape
from hesape import errors
from hesape.driver import Driver
from hesape.jobs import Job, PreparedJob, prepare
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.trial import NAME, OTHER_TENANT, RETRY, TENANT, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

TOO_LARGE = b'"' + b"x" * 32_767 + b'"'
DOORS = ("push", "push_on", "later", "bulk", "prepare")
FORGERIES = (("tenant", OTHER_TENANT, TENANT), ("action", "root", NAME), ("authorized_by", "ada", "system"))


def pusher(queue: Queue, grant: Any, door: str) -> Callable[[Job], object]:
    """A push through one of the doors that take a job."""
    doors: dict[str, Callable[[Job], object]] = {
        "push": lambda job: queue.push(grant, job),
        "push_on": lambda job: queue.push_on(grant, "other", job),
        "later": lambda job: queue.later(grant, 5, job),
        "bulk": lambda job: queue.bulk(grant, [Job.new(grant, NAME), job]),
        "prepare": lambda job: queue.driver.store([prepare(grant, job)]),
    }
    return doors[door]


@rule("G2", "A job of another tenant, action or author is refused on every door, and both values are named")
def forged(trial: Trial) -> None:
    for door in DOORS:
        push = pusher(trial.queue, trial.grant(), door)
        for field, claimed, granted in FORGERIES:
            job = trial.job()
            setattr(job, field, claimed)
            with raises(errors.ForgedError, repr(claimed), repr(granted)):
                push(job)
            assert trial.rows() == {}


@rule("G2", "The order of refusals is tenant, name, forgery, size: each hides what comes after it")
def order(trial: Trial) -> None:
    nobody: Any = object.__new__(hesape.Grant)
    for door in DOORS:
        for field, claimed, _ in FORGERIES:
            job = trial.job()
            job.payload, job.name = TOO_LARGE, ""
            setattr(job, field, claimed)
            if door != "bulk":
                with raises(errors.NoTenantError):
                    pusher(trial.queue, nobody, door)(job)
            push = pusher(trial.queue, trial.grant(), door)
            with raises(errors.NoNameError):
                push(job)
            job.name = NAME
            with raises(errors.ForgedError):
                push(job)
        job = trial.job()
        job.payload = TOO_LARGE
        job.queue, job.priority = "no good", 2**20
        with raises(errors.PayloadTooLargeError):
            pusher(trial.queue, trial.grant(), door)(job)
    first = trial.job()
    first.tenant, first.action, first.authorized_by = OTHER_TENANT, "root", "ada"
    with raises(errors.ForgedError, "tenant"):
        trial.queue.push(trial.grant(), first)
    first.tenant = TENANT
    with raises(errors.ForgedError, "action"):
        trial.queue.push(trial.grant(), first)
    assert trial.rows() == {}


@rule("G2", "Building a job looks at the name before the tenant")
def name_first(trial: Trial) -> None:
    nobody: Any = object.__new__(hesape.Grant)
    with raises(errors.NoNameError):
        Job.new(nobody, "")
    with raises(errors.NoTenantError):
        Job.new(nobody, NAME)
    with raises(errors.NoNameError):
        trial.queue.push_raw(nobody, "", b"{}")
    with raises(errors.NoTenantError):
        trial.queue.push_raw(nobody, NAME, b"{}")


@rule("G2", "Refusals need no store")
def without_store(trial: Trial) -> None:
    queue = trial.without_store()
    for door in DOORS:
        push = pusher(queue, trial.grant(), door)
        for field, claimed, _ in FORGERIES:
            job = trial.job()
            setattr(job, field, claimed)
            with raises(errors.ForgedError):
                push(job)
        job = trial.job()
        job.payload = TOO_LARGE
        with raises(errors.PayloadTooLargeError):
            push(job)


@rule("G4", "Empty fields are filled from the grant, and empty is no forgery")
def filled(trial: Trial) -> None:
    bare = Job(hesape.Job.new(trial.grant(), NAME).id, NAME)
    stored = trial.queue.push(trial.grant(), bare)
    assert (stored.tenant, stored.action, stored.authorized_by) == (TENANT, NAME, "system")
    assert (stored.queue, stored.priority, stored.run_at, stored.payload) == ("default", 100, None, b"{}")
    row = trial.row(stored)
    assert (row["tenant"], row["name"], row["queue"], row["priority"]) == (TENANT, NAME, "default", 100)
    popped = trial.take()
    assert (popped.id, popped.tenant, popped.action) == (stored.id, TENANT, NAME)
    assert (popped.authorized_by, popped.queue, popped.priority) == ("system", "default", 100)
    assert (bare.tenant, bare.queue, bare.priority) == ("", "", None)


@rule("G4", "An explicit queue wins over the attribute's, that over the default, and push_on over all")
def queue_choice(trial: Trial) -> None:
    wish = attributes(queue="wish")
    assert trial.push(attributes=wish).queue == "wish"
    assert trial.push(attributes=wish, queue="said").queue == "said"
    assert trial.queue.push_on(trial.grant(), "fixed", trial.job(queue="said")).queue == "fixed"
    for queue in ("wish", "said", "fixed"):
        assert trial.take(queue).queue == queue
    assert trial.queue.pop("default") == []


@rule("G4", "What the caller wrote about deliveries doesn't survive the push")
def deliveries(trial: Trial) -> None:
    for door in DOORS:
        job = trial.job(queue=door)
        job.attempts, job.exceptions, job.last_error, job.connection_name = 7, 6, "Old: news", "elsewhere"
        if door == "bulk":
            trial.queue.bulk(trial.grant(), [job])
        else:
            pusher(trial.queue, trial.grant(), door)(job)
        row = trial.row(job)
        assert (row["attempts"], row["lapses"], row["exceptions"], row["last_error"]) == (0, 0, 0, None), door
    job = trial.take("push")
    assert (job.attempts, job.exceptions, job.last_error, job.connection_name) == (1, 0, None, "main")
    delivered = trial.push(queue="again")
    again = trial.take("again")
    fresh = Job.new(trial.grant(), NAME, queue="copy")
    fresh.attempts = again.attempts = 50
    trial.queue.push(trial.grant(), fresh)
    assert trial.take("copy").attempts == 1
    assert trial.row(delivered)["attempts"] == 1


@rule("G4", "An absolute time is stored as UTC, and comes back as the same instant")
def absolute_times(trial: Trial) -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    moment = datetime(2031, 7, 1, 12, 0, 0, 123457, tzinfo=zone)
    stored = trial.push(run_at=moment)
    assert stored.run_at == moment
    assert stored.run_at.utcoffset() == timedelta(0)
    assert trial.tally() == (0, 1, 0, 0)


@rule("G6", "A driver stores nothing but what `prepare` made, and refuses the rest without a store")
def back_door(trial: Trial) -> None:
    job = trial.job()
    rebuilt = object.__new__(PreparedJob)
    real = prepare(trial.grant(), job)
    for queue in (trial.queue, trial.without_store()):
        for thing in (job, rebuilt, {"id": job.id}, None, real.job, copy.copy(job), "job"):
            wrong: Any = thing
            with raises(errors.ForgedError):
                queue.driver.store([wrong])
            with raises(errors.ForgedError):
                queue.driver.store([real, wrong])
    assert trial.rows() == {}


@rule("G6", "A prepared job can't be made, copied, pickled or edited")
def frozen(trial: Trial) -> None:
    prepared = prepare(trial.grant(), trial.job({"n": 1}))
    anything: Any = PreparedJob
    with raises(errors.ForgedError):
        anything(None)
    with raises(errors.ForgedError):
        type("Mine", (PreparedJob,), {})
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with raises(errors.ForgedError):
            attempt(prepared)
    seen = prepared.job
    seen.tenant, seen.payload, seen.queue = OTHER_TENANT, b"[]", "other"
    trial.driver.store([prepared])
    popped = trial.take()
    assert (popped.tenant, popped.payload, popped.queue) == (TENANT, b'{"n":1}', "default")


@rule("G6", "An edit after `prepare` changes nothing of what is stored")
def edited_after(trial: Trial) -> None:
    job = trial.job({"n": 1})
    prepared = prepare(trial.grant(), job)
    job.tenant, job.action, job.payload, job.queue, job.priority = OTHER_TENANT, "root", b"[]", "other", 1
    trial.driver.store([prepared])
    popped = trial.take()
    assert (popped.tenant, popped.action, popped.payload, popped.priority) == (TENANT, NAME, b'{"n":1}', 100)


@rule("G6", "A driver class opens no door beside the queue's")
def no_own_door(trial: Trial) -> None:
    doors = {"push", "push_on", "push_raw", "later", "bulk", "store", "authorized", "prepare"}
    for kind in type(trial.driver).__mro__:
        if kind not in (Driver, object):
            assert not doors & vars(kind).keys(), f"{kind.__name__} defines {sorted(doors & vars(kind).keys())}"
    for door in sorted(doors):
        with raises(errors.ForgedError):
            type("Mine", (Driver,), {door: None})


@rule("G6", "A forged job in a bulk stops the whole bulk, and the error names its index")
def forged_in_bulk(trial: Trial) -> None:
    jobs = [trial.job() for _ in range(3)]
    jobs[1].action = "root"
    with raises(errors.ForgedError) as caught:
        trial.queue.bulk(trial.grant(), jobs)
    assert caught.error.index == 1
    assert trial.rows() == {}


@rule("G6", "A retry is no push: the job keeps its own action and author, whatever the caller's grant")
def retry_is_no_push(trial: Trial) -> None:
    job = trial.parked()
    envelope = trial.row(job)["envelope"]
    policy_grant = trial.grant(action=RETRY)
    trial.queue.retry(policy_grant, job.id)
    assert trial.row(job)["envelope"] == envelope
    again = trial.take()
    assert (again.action, again.authorized_by, again.tenant) == (NAME, "system", TENANT)
    for action in (NAME, "hesape.failed.read", "hesape.failed.forget"):
        with raises(errors.ForbiddenError):
            trial.queue.retry(trial.grant(action=action), job.id)
