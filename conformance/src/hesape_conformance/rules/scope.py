"""G7: who sees and repairs failed jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import errors
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.trial import FORGET, NAME, OTHER_TENANT, READ, RETRY, TENANT

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial

BOTH = (TENANT, OTHER_TENANT)


@rule("G7", "Reading, retrying and forgetting each need their own action")
def actions(trial: Trial) -> None:
    job = trial.parked()
    queue, grant = trial.queue, trial.grant
    with trial.unchanged():
        for action in (NAME, READ, RETRY, FORGET, "hesape.failed", "hesape.failed.readers"):
            if action != READ:
                with raises(errors.ForbiddenError):
                    queue.failed(grant(action=action))
                with raises(errors.ForbiddenError):
                    queue.find(grant(action=action), job.id)
            if action != RETRY:
                with raises(errors.ForbiddenError):
                    queue.retry(grant(action=action), job.id)
            if action != FORGET:
                with raises(errors.ForbiddenError):
                    queue.forget(grant(action=action), job.id)
    assert [found.id for found in queue.failed(grant(action=READ))] == [job.id]
    assert queue.find(grant(action=READ), job.id).id == job.id
    queue.retry(grant(action=RETRY), job.id)
    trial.take().fail("Boom")
    assert queue.forget(grant(action=FORGET), job.id) == 1


@rule("G7", "A tenant sees its own failed jobs alone, whatever the page and the queue")
def own_tenant(trial: Trial) -> None:
    mine: dict[str, list[str]] = {tenant: [] for tenant in BOTH}
    for _ in range(3):
        for tenant in BOTH:
            mine[tenant].insert(0, trial.parked(tenant=tenant).id)
    for tenant in BOTH:
        grant = trial.grant(tenant, READ)
        assert [job.id for job in trial.queue.failed(grant)] == mine[tenant]
        assert [job.id for job in trial.queue.failed(grant, queue="default", limit=2)] == mine[tenant][:2]
        page = trial.queue.failed(grant, limit=2)
        assert [job.id for job in trial.queue.failed(grant, before=page[-1])] == mine[tenant][2:]
        assert {job.tenant for job in trial.queue.failed(grant)} == {tenant}
    assert {job.tenant for job in trial.queue.operator().failed()} == set(BOTH)


@rule("G7", "Another tenant's job is not found, and nothing happens to it")
def foreign_id(trial: Trial) -> None:
    theirs = trial.parked(tenant=OTHER_TENANT)
    mine = trial.parked()
    queue, grant = trial.queue, trial.grant
    with trial.unchanged():
        with raises(errors.JobNotFoundError):
            queue.find(grant(action=READ), theirs.id)
        for ids in (theirs.id, [mine.id, theirs.id]):
            with raises(errors.JobNotFoundError):
                queue.retry(grant(action=RETRY), ids)
            with raises(errors.JobNotFoundError):
                queue.forget(grant(action=FORGET), ids)
    live = trial.push(tenant=OTHER_TENANT)
    with raises(errors.JobNotFoundError):  # not NotFailedError: that would tell that it exists
        queue.find(grant(action=READ), live.id)


@rule("G7", "The operator sees and repairs every tenant's")
def operator(trial: Trial) -> None:
    jobs = [trial.parked(tenant=tenant) for tenant in BOTH]
    operator = trial.queue.operator()
    assert [found.id for found in operator.failed()] == [job.id for job in reversed(jobs)]
    for job in jobs:
        assert operator.find(job.id).id == job.id
    operator.retry([job.id for job in jobs])
    assert trial.tally() == (2, 0, 0, 0)
    for _ in jobs:
        trial.take().fail("Boom")
    assert operator.forget([job.id for job in jobs]) == 2
    assert trial.rows() == {}


@rule("G7", "A tampered record is shown to the operator alone, and can't be retried")
def tampered_record(trial: Trial) -> None:
    job, good = trial.parked(), trial.parked()
    trial.raw.overwrite(job.id, "name", "root")
    queue, grant = trial.queue, trial.grant
    shown = {found.id: found for found in queue.operator().failed()}
    assert shown.keys() == {job.id, good.id}
    assert shown[job.id].problem.startswith("tampered")
    assert shown[good.id].problem == ""
    assert [found.id for found in queue.failed(grant(action=READ))] == [good.id]
    with trial.unchanged():
        with raises(errors.JobNotFoundError):
            queue.find(grant(action=READ), job.id)
        for ids in (job.id, [good.id, job.id]):
            with raises(errors.JobNotFoundError):
                queue.retry(grant(action=RETRY), ids)
            with raises(errors.TamperedError):
                queue.operator().retry(ids)
    assert queue.operator().forget(job.id) == 1


@rule("G7", "A record moved to another tenant behind the driver's back is seen by neither")
def moved_record(trial: Trial) -> None:
    job = trial.parked()
    trial.raw.overwrite(job.id, "tenant", OTHER_TENANT)
    for tenant in BOTH:
        assert trial.queue.failed(trial.grant(tenant, READ)) == []
        with raises(errors.JobNotFoundError):
            trial.queue.find(trial.grant(tenant, READ), job.id)
        with raises(errors.JobNotFoundError):
            trial.queue.retry(trial.grant(tenant, RETRY), job.id)
    assert [found.problem != "" for found in trial.queue.operator().failed()] == [True]


@rule("G7", "Numbers per queue need no grant and carry nobody's content")
def numbers(trial: Trial) -> None:
    for tenant in BOTH:
        trial.push(tenant=tenant)
    assert trial.tally() == (2, 0, 0, 0)
    assert trial.queue.oldest_pending() is not None
    assert trial.queue.queues() == ["default"]
