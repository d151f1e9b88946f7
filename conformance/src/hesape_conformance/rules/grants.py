"""G1, G3, G5: what a grant is, for whom, and what a worker gets."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import attrs

import hesape
from hesape import errors
from hesape.grants import Grant, Subject
from hesape.jobs import Job
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.trial import NAME, OTHER_TENANT, TENANT

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial

BAD_TENANTS = ("", "Acme", "acme\n", "-acme", "_acme", "ac me", "a" * 65, "a:b", "a/b", "äcme", "٣", "acme\0", None, 7)
GOOD_TENANTS = ("a", "0", "a" * 64, "a-b_c", "9_-")


@attrs.define
class Answering:
    """A policy that gives one answer and remembers whether it was asked."""

    answer: Any
    asked: int = 0

    def can(self, subject: Subject, action: str, resource: Any, /) -> Any:
        """Give it."""
        self.asked += 1
        return self.answer


@rule("G1", "A grant can't be built, subclassed, copied or pickled")
def no_other_source(trial: Trial) -> None:
    grant = trial.grant()
    anything: Any = Grant
    with raises(errors.ForgedError):
        anything(action=NAME, tenant=TENANT) if False else anything(None)
    with raises(errors.ForgedError):
        type("Mine", (Grant,), {})
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with raises(errors.ForgedError):
            attempt(grant)


@rule("G1", "A grant that nobody issued has no tenant, covers no action and stores nothing")
def rebuilt_grant(trial: Trial) -> None:
    issued = trial.grant()  # there is a real one meanwhile, for which another may be taken
    for made in (object.__new__(Grant), *_altered(trial)):
        assert made.tenant == ""
        with raises(errors.ForbiddenError):
            made.check(NAME)
        with raises(errors.NoTenantError):
            Job.new(made, NAME)
        job = trial.job()
        for push in _doors(trial, made, job):
            with raises(errors.NoTenantError):
                push()
        with raises(errors.ForbiddenError):
            trial.queue.failed(made)
    assert issued.tenant == TENANT
    assert trial.rows() == {}


def _altered(trial: Trial) -> list[Grant]:
    """Grants that somebody tried to alter, as far as that succeeded in changing what they say."""
    found = []
    for field, value in (("tenant", OTHER_TENANT), ("action", "root"), ("subject", Subject(id="root", tenant=TENANT))):
        grant = trial.grant()
        before = (grant.tenant, grant.action, grant.subject)
        try:
            object.__setattr__(grant, field, value)
        except AttributeError:
            assert (grant.tenant, grant.action, grant.subject) == before
        else:
            found.append(grant)
    return found


def _doors(trial: Trial, grant: Grant, job: Job) -> list[Any]:
    queue = trial.queue
    return [
        lambda: queue.push(grant, job),
        lambda: queue.push_on(grant, "other", job),
        lambda: queue.later(grant, 5, job),
        lambda: queue.bulk(grant, [job]),
        lambda: queue.push_raw(grant, NAME, b"{}"),
    ]


@rule("G1", "A policy allows with True alone, and is not asked for a subject without an id")
def policy_answers(trial: Trial) -> None:
    subject = Subject(id="ada", tenant=TENANT, roles=["clerk"])
    for answer in (False, None, 1, "yes", [True], object()):
        with raises(errors.ForbiddenError):
            hesape.authorize(Answering(answer), subject, NAME)
    policy = Answering(answer=True)
    with raises(errors.ForbiddenError):
        hesape.authorize(policy, Subject(id="", tenant=TENANT), NAME)
    assert policy.asked == 0
    grant = hesape.authorize(policy, subject, NAME, object())
    assert (grant.tenant, grant.action, grant.subject) == (TENANT, NAME, subject)
    grant.check(NAME)
    for action in ("", "invoice", "invoice.send2", "Invoice.send"):
        with raises(errors.ForbiddenError):
            grant.check(action)
    job = trial.queue.push(grant, Job.new(grant, NAME))
    assert trial.take().authorized_by == job.authorized_by == "ada"


@rule("G1", "A grant for a job is given for what came off a queue alone")
def grant_for_delivered(trial: Trial) -> None:
    pushed = trial.push()
    popped = trial.take()
    for job in (trial.job(), pushed, copy.copy(popped), copy.deepcopy(popped), attrs.evolve(popped)):
        with raises(errors.DetachedError):
            hesape.grant_for(job)
    assert hesape.grant_for(popped).tenant == TENANT


@rule("G3", "Another tenant than a short lower-case word is refused where the grant is made")
def tenants(trial: Trial) -> None:
    for tenant in BAD_TENANTS:
        wrong: Any = tenant
        with raises(errors.NameInvalidError):
            hesape.system_grant(NAME, wrong)
        policy = Answering(answer=True)
        with raises(errors.NameInvalidError):
            hesape.authorize(policy, Subject(id="ada", tenant=wrong), NAME)
    for tenant in GOOD_TENANTS:
        trial.push(tenant=tenant)
    assert sorted(row["tenant"] for row in trial.rows().values()) == sorted(GOOD_TENANTS)
    assert {trial.take().tenant for _ in GOOD_TENANTS} == set(GOOD_TENANTS)


@rule("G3", "A tenant written on a job afterwards is refused at push")
def edited_tenant(trial: Trial) -> None:
    for tenant in BAD_TENANTS:
        if tenant:
            job = trial.job()
            job.tenant = tenant  # type: ignore[assignment]
            for push in _doors(trial, trial.grant(), job)[:4]:
                with raises(errors.ForgedError):
                    push()
    assert trial.rows() == {}


@rule("G5", "A worker's grant is the system's, for the stored action and tenant, on every path")
def worker_grant(trial: Trial) -> None:
    subject = Subject(id="ada", tenant=OTHER_TENANT)
    grant = hesape.authorize(Answering(answer=True), subject, "books.close")
    pushed = trial.queue.push(grant, Job.new(grant, NAME))

    def check(job: Job) -> None:
        found = hesape.grant_for(job)
        assert (found.subject.id, found.action, found.tenant) == ("system", "books.close", OTHER_TENANT)
        assert (job.id, job.action, job.tenant, job.authorized_by) == (pushed.id, "books.close", OTHER_TENANT, "ada")

    job = trial.take()
    check(job)
    job.release()
    job = trial.take(lease=0.03)
    check(job)
    trial.outlive(job)
    job = trial.take()
    check(job)
    job.fail("Boom")
    trial.queue.retry(trial.grant(OTHER_TENANT, "hesape.failed.retry"), job.id)
    check(trial.take())


@rule("G5", "What a handler writes on its job changes neither its grant nor the record")
def edited_job(trial: Trial) -> None:
    job = trial.taken()
    job.tenant, job.action, job.authorized_by, job.name = OTHER_TENANT, "root", "root", "root"
    job.queue, job.payload, job.attempts = "other", b'{"a":1}', 0
    grant = hesape.grant_for(job)
    assert (grant.tenant, grant.action, grant.subject.id) == (TENANT, NAME, "system")
    job.release()
    again = trial.take()
    assert (again.id, again.tenant, again.action, again.name) == (job.id, TENANT, NAME, NAME)
    assert (again.queue, again.payload, again.attempts) == ("default", b"{}", 2)
