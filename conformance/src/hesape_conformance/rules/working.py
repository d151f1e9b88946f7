"""G9, L2, L9, S4, S6, S7, T2: what a worker makes of a store's jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import hesape
from hesape import errors, times
from hesape.driver import Capability
from hesape.jobs import Job
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually, raises
from hesape_conformance.trial import NAME, TENANT, attributes
from hesape_conformance.workshop import Workshop

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial


def reasons(trial: Trial) -> dict[str, str]:
    """The reason of every failed job."""
    return {job.id: (job.last_error or "").partition(":")[0] for job in trial.queue.operator().failed(limit=1000)}


def _nothing() -> None:
    """Do nothing."""


@rule("G9", "A push through a handler refuses a grant for another action, and stores nothing")
def push_refused(trial: Trial) -> None:
    handler = Workshop(trial).handler("books.close", _nothing, action="accounting")
    by_name = Workshop(trial).handler(NAME, _nothing)
    for grant in (trial.grant(action="books.close"), trial.grant(action=NAME), trial.grant(action="Accounting")):
        with raises(errors.ActionMismatchError, "accounting", grant.action):
            handler.push(grant)
        with raises(errors.ActionMismatchError):
            handler.later(grant, 5)
        with raises(errors.ActionMismatchError):
            handler.using(queue="other").push(grant)
    with raises(errors.ActionMismatchError):
        by_name.push(trial.grant(action="accounting"))
    assert trial.rows() == {}
    assert handler.push(trial.grant(action="accounting")).action == "accounting"


@rule("G9", "A worker parks a job whose action isn't its handler's before anything runs")
def worker_parks(trial: Trial) -> None:
    ran: list[str] = []
    workshop = Workshop(trial)
    workshop.handler("books.close", lambda job: ran.append(job.id), action="accounting")
    workshop.handler(NAME, _noting(ran))
    smuggled = trial.push(name="books.close")
    fine = trial.push()
    workshop.work()
    assert ran == [fine.id]
    assert reasons(trial) == {smuggled.id: "ActionMismatchError"}


def _noting(ran: list[str]) -> Any:
    def handler(job: Job) -> None:
        grant = hesape.current_grant()
        assert grant is not None
        assert (grant.tenant, grant.action, grant.subject.id) == (job.tenant, job.action, "system")
        ran.append(job.id)

    return handler


@rule("G8", "A worker never runs a tampered record's handler, and runs its neighbours'")
def worker_tampered(trial: Trial) -> None:
    ran: list[str] = []
    workshop = Workshop(trial)
    workshop.handler(NAME, _noting(ran))
    workshop.handler("root", _noting(ran), action=NAME)
    jobs = [trial.push() for _ in range(4)]
    trial.raw.overwrite(jobs[1].id, "tenant", "globex")
    trial.raw.overwrite(jobs[2].id, "name", "root")
    workshop.work()
    assert sorted(ran) == sorted([jobs[0].id, jobs[3].id])
    assert reasons(trial) == {jobs[1].id: "TamperedError", jobs[2].id: "TamperedError"}


@rule("L2", "A worker parks a job before its handler runs when its attempts exceed its tries")
def over_tries(trial: Trial) -> None:
    ran: list[str] = []
    workshop = Workshop(trial)
    workshop.handler(NAME, _noting(ran))
    dying = trial.push(attributes=attributes(tries=2))
    for _ in range(2):
        trial.outlive(trial.take(lease=0.02))
    last = trial.push(queue="last", attributes=attributes(tries=2))
    trial.outlive(trial.take("last", lease=0.02))
    fine = trial.push(attributes=attributes(tries=2))
    workshop.work(queues=("default", "last"))
    assert sorted(ran) == sorted([fine.id, last.id])
    assert reasons(trial) == {dying.id: "AttemptsExceededError"}


@rule("L2", "Where no limit is in force a worker parks at five lapses, and not before")
def five_lapses(trial: Trial) -> None:
    ran: list[str] = []
    workshop = Workshop(trial)
    workshop.handler(NAME, _noting(ran))
    four, five = (trial.push(queue=str(n), attributes=attributes(tries=-1)) for n in (4, 5))
    for queue in ("4", "5"):
        for _ in range(int(queue)):
            trial.outlive(trial.take(queue, lease=0.01))
    workshop.work(queues=("4", "5"))
    assert ran == [four.id]
    assert reasons(trial) == {five.id: "AttemptsExceededError"}


@rule("T2", "Whether retry_until has passed is told by the store's clock")
def past_deadline(trial: Trial) -> None:
    ran: list[str] = []
    workshop = Workshop(trial)
    workshop.handler(NAME, _noting(ran))
    now = trial.driver.now()
    late = trial.push(attributes=attributes(retry_until=times.from_us(now + 100_000)))
    early = trial.push(attributes=attributes(retry_until=times.from_us(now + 3_600_000_000)))
    trial.until(now + 150_000)
    workshop.work()
    assert ran == [early.id]
    assert reasons(trial) == {late.id: "DeadlineExceededError"}


@rule("L9", "A worker starts nothing of a paused queue, and what it prefetched goes back")
def worker_pauses(trial: Trial) -> None:
    held: list[int] = []
    workshop = Workshop(trial)

    def pausing(job: Job) -> None:
        held.append(trial.tally()[2])
        trial.queue.operator().pause("default")
        try:
            eventually(lambda: trial.tally()[2] == 1, "what was prefetched goes back")
            held.append(1)
        finally:
            workshop.stop()

    workshop.handler(NAME, pausing)
    jobs = [trial.push() for _ in range(12)]
    workshop.work(concurrency=1, stop_when_empty=False, prefetch=5, lease_s=3.0)
    assert held == [6, 1]
    assert trial.tally() == (11, 0, 0, 0)
    trial.queue.operator().resume("default")
    left = trial.queue.pop(n=12)
    assert [job.id for job in left] == [job.id for job in jobs[1:]]
    assert {job.attempts for job in left} == {1}


@rule("S6", "A worker deletes a job that its handler marked as failed, and neither parks nor releases it")
def worker_marked(trial: Trial) -> None:
    workshop = Workshop(trial)

    def marking(job: Job, *, raising: bool) -> None:
        job.mark_as_failed()
        if raising:
            message = "after marking"
            raise ValueError(message)

    workshop.handler(NAME, marking)
    for raising in (False, True):
        trial.push({"raising": raising})
    workshop.work()
    assert trial.rows() == {}


@rule("S7", "What a handler settled stays so, whether it returned or raised")
def settled_by_handler(trial: Trial) -> None:
    for raising in (False, True):
        workshop = Workshop(trial)

        def settling(job: Job, how: str, *, raising: bool = raising) -> None:
            getattr(job, how)(*((3600,) if how == "release" else ()))
            if raising:
                message = "after settling"
                raise ValueError(message)

        workshop.handler(NAME, settling)
        jobs = {how: trial.push({"how": how}) for how in ("delete", "release", "fail")}
        workshop.work()
        rows = trial.rows()
        assert jobs["delete"].id not in rows
        assert (rows[jobs["release"].id]["state"], rows[jobs["release"].id]["exceptions"]) == ("scheduled", 0)
        assert (rows[jobs["fail"].id]["state"], rows[jobs["fail"].id]["exceptions"]) == ("failed", 0)
        trial.queue.operator().clear("default")
        trial.queue.operator().flush()


@rule("S1", "A worker releases what raised with its backoff, and parks what raised too often or asked for it")
def outcomes(trial: Trial) -> None:
    workshop = Workshop(trial)
    turns: list[str] = []

    def raising(job: Job, kind: str) -> None:
        turns.append(job.id)
        if kind == "fail":
            raise errors.FailJob
        message = "not yet"
        raise ValueError(message)

    workshop.handler(NAME, raising)
    again = trial.push({"kind": "raise"}, attributes=attributes(tries=3, backoff=(0, 3600)))
    once = trial.push({"kind": "raise"}, attributes=attributes(max_exceptions=1, tries=9))
    asked = trial.push({"kind": "fail"})
    workshop.work()
    assert (turns.count(again.id), turns.count(once.id), turns.count(asked.id)) == (2, 1, 1)
    row = trial.row(again)
    assert (row["state"], row["attempts"], row["exceptions"]) == ("scheduled", 2, 2)
    assert (row["last_error"] or "").startswith("ValueError: not yet\n\nTraceback")
    assert reasons(trial) == {once.id: "ValueError", asked.id: "FailJob"}


@rule("S4", "A handler's settlement in a transaction that it rolled back is repeated by its worker, one that committed "
      "stands", capability=Capability.TRANSACTIONS)  # fmt: skip
def in_transaction(trial: Trial) -> None:
    workshop = Workshop(trial)

    def settling(job: Job, end: str) -> None:
        if job.attempts > 1:
            job.fail("second: turn")
            return
        with trial.harness.lend(trial.namespace) as loan:
            loan.begin()
            loan.write(end)
            job.delete(tx=loan.connection)
            getattr(loan, end)()
        message = "after all"
        raise ValueError(message)

    workshop.handler(NAME, settling, backoff=0)
    trial.push({"end": "commit"})
    workshop.work(concurrency=1)
    back = trial.push({"end": "rollback"})
    workshop.work(concurrency=1)
    assert reasons(trial) == {back.id: "second"}
    assert trial.lend().written() == ["commit"]


@rule("G5", "A handler runs under the grant of its own job, and none is left after it")
def own_grant(trial: Trial) -> None:
    seen: list[tuple[int, str, str]] = []
    workshop = Workshop(trial)

    def looking(n: int, grant: hesape.Grant) -> None:
        current = hesape.current_grant()
        assert current is grant
        seen.append((n, grant.tenant, grant.action))

    workshop.handler(NAME, looking)
    for n in range(12):
        trial.push({"n": n}, tenant=f"{TENANT}-{n % 3}")
    workshop.work(concurrency=3)
    assert sorted(seen) == [(n, f"{TENANT}-{n % 3}", NAME) for n in range(12)]
    assert hesape.current_grant() is None
    assert trial.rows() == {}
