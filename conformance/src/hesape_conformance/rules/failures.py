"""F1, F2, F3, F4: the failed list."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hesape import errors, times
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually, raises
from hesape_conformance.rules.identity import states
from hesape_conformance.trial import FORGET, NAME, OTHER_TENANT, READ, RETRY, TENANT, attributes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape.failed import FailedJob
    from hesape_conformance.trial import Trial


def fail_many(trial: Trial, n: int, **options: Any) -> list[str]:
    """Push and fail n jobs, as fast as the store can; their ids, newest first by failure, then by id."""
    trial.push_many(n, **options)
    for job in trial.queue.pop(options.get("queue", "default"), n=n):
        job.fail("Boom")
    return [found.id for found in trial.queue.failed(trial.grant(action=READ), limit=1000)]


@rule("F1", "Newest first, every field as it was")
def newest_first(trial: Trial) -> None:
    ids: list[str] = []
    for n in range(5):
        job = trial.parked(f"Boom: {n}", payload={"n": n}, display_name=f"Job {n}", priority=n)
        ids.insert(0, job.id)
        trial.until(trial.driver.now() + 1_000)
    found = trial.queue.failed(trial.grant(action=READ))
    assert [job.id for job in found] == ids
    assert [job.failed_at for job in found] == sorted((job.failed_at for job in found), reverse=True)
    newest = found[0]
    assert (newest.name, newest.display_name, newest.queue, newest.tenant) == (NAME, "Job 4", "default", TENANT)
    assert (newest.action, newest.authorized_by, newest.payload, newest.priority) == (NAME, "system", b'{"n":4}', 4)
    assert (newest.attempts, newest.exceptions, newest.last_error, newest.problem) == (1, 0, "Boom: 4", "")
    assert newest.pushed_at < newest.failed_at


@rule("F1", "Pages follow each other without a gap or a repeat, also among equal times and while more fail")
def pages(trial: Trial) -> None:
    fail_many(trial, trial.times(23, 57, 357))
    for size in (1, 7, 10, 500):
        everything = [job.id for job in trial.queue.failed(trial.grant(action=READ), limit=1000)]
        assert len(set(everything)) == len(everything)
        seen: list[str] = []
        before: FailedJob | str | None = None
        while page := trial.queue.failed(trial.grant(action=READ), limit=size, before=before):
            assert len(page) <= size
            seen += [job.id for job in page]
            before = page[-1] if len(seen) % 2 else page[-1].cursor
            if len(seen) == 7:
                trial.parked()
        assert seen == everything, size


@rule("F1", "The queue filter is exact")
def by_queue(trial: Trial) -> None:
    for queue in ("mail", "Mail", "mails"):
        trial.parked(queue=queue)
    for queue in ("mail", "Mail", "mails"):
        found = trial.queue.failed(trial.grant(action=READ), queue=queue)
        assert [job.queue for job in found] == [queue]
        assert [job.queue for job in trial.queue.operator().failed(queue=queue)] == [queue]
    assert trial.queue.failed(trial.grant(action=READ), queue="none") == []


@rule("F1", "A limit out of range and a cursor that is none are refused")
def bad_page(trial: Trial) -> None:
    wrong: Any
    for wrong in (0, -1, 1001, 1.5, "5", True, None):
        with raises(errors.ArgumentInvalidError):
            trial.queue.failed(trial.grant(action=READ), limit=wrong)
    for wrong in ("", "x", ":", "1", "-5:x", "٣:x"):
        with raises(errors.ArgumentInvalidError if wrong != "1" else errors.IdInvalidError):
            trial.queue.failed(trial.grant(action=READ), before=wrong)


@rule("F2", "A retried job is the same job, its counts and error reset, due now")
def retried(trial: Trial) -> None:
    until = times.from_us(trial.driver.now() + 3_600_000_000)
    wanted = attributes(tries=7, backoff=(1, 2), retry_until=until, unique_for=60)
    pushed = trial.push({"n": 1}, priority=3, queue="mail", display_name="Job", attributes=wanted)
    job = trial.take("mail")
    job.exceptions, job.last_error = 4, "Boom"
    job.fail()
    envelope = trial.row(job)["envelope"]
    before = trial.driver.now()
    trial.queue.retry(trial.grant(action=RETRY), job.id)
    row = trial.row(job)
    assert (row["attempts"], row["exceptions"], row["lapses"], row["last_error"]) == (0, 0, 0, None)
    assert (row["envelope"], row["priority"], row["queue"]) == (envelope, 3, "mail")
    assert trial.tally("mail") == (1, 0, 0, 0)
    again = trial.take("mail")
    assert (again.id, again.tenant, again.action, again.authorized_by) == (pushed.id, TENANT, NAME, "system")
    assert (again.attributes, again.priority, again.payload, again.display_name) == (wanted, 3, b'{"n":1}', "Job")
    assert (again.attempts, again.exceptions, again.last_error) == (1, 0, None)
    assert before <= times.to_us(again.run_at or until) <= trial.driver.now()
    assert again.retry_until is not None
    assert again.retry_until >= until
    again.fail("Again")
    [failed] = trial.queue.failed(trial.grant(action=READ))
    assert (failed.id, failed.last_error, failed.attempts) == (pushed.id, "Again", 1)


@rule("F2", "A list is retried whole, each job once, in one call")
def many(trial: Trial) -> None:
    ids = fail_many(trial, 30)
    trial.queue.retry(trial.grant(action=RETRY), [*ids[:20], ids[0]])
    assert trial.tally() == (20, 0, 0, 10)
    assert sorted(job.id for job in trial.queue.pop(n=50)) == sorted(ids[:20])


@rule("F3", "An unknown id is not found, a live job hasn't failed, in every state; nothing changes")
def refused(trial: Trial) -> None:
    live = {}
    for state, bring in states(trial).items():
        live[state] = trial.push(queue=state)
        bring(live[state])
    failed = live.pop("failed")
    queue, grant, operator = trial.queue, trial.grant, trial.queue.operator()
    with trial.unchanged():
        unknown = trial.job().id
        bad: list[tuple[str, type[errors.HesapeError]]] = [(unknown, errors.JobNotFoundError)]
        for bad_id, kind in bad + [(job.id, errors.NotFailedError) for job in live.values()]:
            with raises(kind, bad_id):
                queue.find(grant(action=READ), bad_id)
            with raises(kind):
                operator.find(bad_id)
            for ids in (bad_id, [failed.id, bad_id]):
                with raises(kind):
                    queue.retry(grant(action=RETRY), ids)
                with raises(kind):
                    operator.retry(ids)
                with raises(kind):
                    queue.forget(grant(action=FORGET), ids)
                with raises(kind):
                    operator.forget(ids)
    assert issubclass(errors.JobNotFoundError, LookupError)


@rule("F3", "What isn't an id is refused before any look")
def not_an_id(trial: Trial) -> None:
    wrong: Any
    for wrong in ("", "x", "' OR 1=1", trial.job().id.upper(), "%"):
        for queue in (trial.queue, trial.without_store()):
            with raises(errors.IdInvalidError):
                queue.find(trial.grant(action=READ), wrong)
            with raises(errors.IdInvalidError):
                queue.retry(trial.grant(action=RETRY), wrong)
            with raises(errors.IdInvalidError):
                queue.forget(trial.grant(action=FORGET), wrong)


@rule("F4", "Forget removes what it is told, all or nothing, and says how many")
def forget(trial: Trial) -> None:
    ids = fail_many(trial, 6)
    grant = trial.grant(action=FORGET)
    with trial.unchanged(), raises(errors.JobNotFoundError):
        trial.queue.forget(grant, [*ids[:2], trial.job().id])
    assert trial.queue.forget(grant, ids[0]) == 1
    assert trial.queue.forget(grant, ids[1:4]) == 3
    assert trial.queue.forget(grant, []) == 0
    assert trial.rows().keys() == set(ids[4:])


@rule("F4", "Prune removes what failed longer ago than that, flush all, and both count; the living stay")
def prune(trial: Trial) -> None:
    live = [trial.push(queue="a"), trial.taken(queue="b"), trial.push(queue="c", delay=60)]
    old = [trial.parked(tenant=tenant) for tenant in (TENANT, OTHER_TENANT)]
    trial.until(trial.driver.now() + 400_000)
    new = trial.parked()
    operator = trial.queue.operator()
    assert operator.prune(timedelta(hours=1)) == 0
    assert operator.prune(0.3) == 2
    assert trial.rows().keys() == {new.id, *(job.id for job in live)}
    trial.parked(queue="other")
    assert operator.flush() == 2
    assert operator.flush() == 0
    assert trial.rows().keys() == {job.id for job in live}
    assert not trial.rows().keys() & {job.id for job in old}


@rule("F4", "Failed jobs are never removed unasked")
def unasked(trial: Trial) -> None:
    ids = fail_many(trial, 5)
    trial.driver.rescue()
    trial.queue.pop(n=5)
    trial.queue.operator().clear("default")
    trial.another().operator().queues()
    assert trial.rows().keys() == set(ids)


@rule("F4", "Locks, counters, flags, unique keys and workers go, wholly, when their time is over")
def leftovers(trial: Trial) -> None:
    assert trial.raw.entries() == 0
    for n in range(10):
        trial.queue.lock(f"lock {n}", 0.05).take()
        trial.queue.counter(f"counter {n}", 0.05).add()
        trial.queue.flag(f"flag {n}", 0.05).set()
        trial.push(attributes=attributes(unique_for=0.05, unique_key=str(n)))
        trial.driver.beat(f"worker {n}", 50_000, 50_000)
    assert trial.raw.entries() >= 10
    trial.queue.flag("lasting").set("yes")
    for job in trial.queue.pop(n=10):
        job.delete()
    trial.until(trial.driver.now() + 100_000)

    def cleaned() -> bool:
        trial.driver.rescue()
        return trial.raw.entries() == 1

    eventually(cleaned, "only the lasting flag is kept", every_s=0.1)
    assert trial.queue.flag("lasting").value() == "yes"
    trial.queue.flag("lasting").erase()
    assert trial.raw.entries() == 0
    assert trial.rows() == {}


@rule("F4", "After thousands of jobs nothing is left of them")
def nothing_left(trial: Trial) -> None:
    for _ in range(trial.times(1, 5, 50)):
        _lives(trial, trial.push_many(200))
    trial.driver.rescue()
    assert trial.rows() == {}
    assert trial.raw.entries() == 0
    assert trial.queue.queues() == []


def _lives(trial: Trial, pushed: Sequence[object]) -> None:
    jobs = trial.queue.pop(n=len(pushed))
    for n, job in enumerate(jobs[:40]):
        if n % 2:
            job.release()
        else:
            job.fail("Boom")
    assert trial.driver.delete_jobs(jobs[40:]) == []
    assert trial.queue.operator().flush() == 20
    for job in trial.queue.pop(n=20):
        job.delete()
