"""L8, L9: jobs that never started, and paused queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import errors
from hesape.driver import Fact
from hesape.jobs import key_of
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.order import numbers
from hesape_conformance.trial import OTHER_TENANT

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial


@rule("L8", "What was reserved and never started goes back with its attempt, its lapses and its place")
def handed_back(trial: Trial) -> None:
    trial.push_many(4)
    trial.outlive(trial.take(lease=0.02))
    jobs = trial.queue.pop(n=3)
    assert [job.attempts for job in jobs] == [2, 1, 1]
    trial.driver.hand_back(jobs[:2])
    assert trial.tally() == (3, 0, 1, 0)
    again = trial.queue.pop(n=9)
    assert numbers(again) == [0, 1, 3]
    assert [job.attempts for job in again] == [2, 1, 1]
    assert [job.run_at for job in again[:2]] == [job.run_at for job in jobs[:2]]
    assert trial.row(again[0])["lapses"] == 1


@rule("L8", "A stale hand-back, or one that is repeated, changes nothing")
def stale_hand_back(trial: Trial) -> None:
    stale = trial.lapsed()
    current = trial.take()
    with trial.unchanged():
        trial.driver.hand_back([stale])
    trial.driver.hand_back([current])
    with trial.unchanged():
        trial.driver.hand_back([current, stale])
        trial.driver.hand_back([])
        with raises(errors.LeaseLostError):
            current.delete()
    assert trial.take().attempts == 2
    with raises(errors.DetachedError):
        trial.driver.hand_back([trial.job()])


@rule("L8", "It keeps its error and exceptions, and a paused queue's jobs go back too")
def keeps_error(trial: Trial) -> None:
    job = trial.taken()
    job.last_error, job.exceptions = "Boom: once", 1
    job.release()
    job = trial.take()
    trial.queue.operator().pause("default")
    trial.driver.hand_back([job])
    row = trial.row(job)
    assert (row["attempts"], row["exceptions"], row["last_error"]) == (1, 1, "Boom: once")
    assert trial.tally() == (1, 0, 0, 0)


@rule("L9", "A paused queue hands out nothing to anybody until it is resumed; then all, in order")
def paused(trial: Trial) -> None:
    operator = trial.queue.operator()
    trial.push_many(2)
    operator.pause("default")
    operator.pause("default")
    trial.push({"n": 2})
    trial.push({"n": 3}, tenant=OTHER_TENANT, priority=200)
    for queue in (trial.queue, trial.another()):
        assert queue.pop(n=9) == []
        assert queue.pop(["other", "default"], n=9) == []
    assert trial.tally() == (4, 0, 0, 0)
    operator.resume("default")
    operator.resume("default")
    assert numbers(trial.another().pop(n=9)) == [0, 1, 2, 3]


@rule("L9", "It concerns that one queue, compared exactly")
def one_queue(trial: Trial) -> None:
    for queue in ("mail", "Mail", "mails", "mai"):
        trial.push({"n": len(queue)}, queue=queue)
    trial.queue.operator().pause("mail")
    assert {job.queue for job in trial.queue.pop(["mail", "Mail", "mails", "mai"], n=9)} == {"Mail", "mails", "mai"}
    trial.queue.operator().pause("never-used")
    assert trial.queue.queues() == sorted(["mail", "Mail", "mails", "mai", "never-used"])
    trial.queue.operator().resume("never-used")
    assert "never-used" not in trial.queue.queues()


@rule("L9", "What came off it before settles as ever, and comes back to a paused queue")
def in_flight(trial: Trial) -> None:
    trial.push_many(5)
    deleted, released, failed, lapsing = trial.queue.pop(n=4, lease=0.4)
    trial.queue.operator().pause("default")
    deleted.delete()
    released.release()
    failed.fail("Boom")
    trial.outlive(lapsing)
    trial.queue.operator().retry(failed.id)
    assert trial.queue.pop(n=9) == []
    assert trial.tally() == (4, 0, 0, 0)
    trial.queue.operator().resume("default")
    assert sorted(numbers(trial.queue.pop(n=9))) == [1, 2, 3, 4]


@rule("L9", "Claims and beats tell which queues are paused")
def told(trial: Trial) -> None:
    driver, operator = trial.driver, trial.queue.operator()
    assert trial.peek().paused == frozenset()
    assert driver.beat("watcher", 60_000_000, 60_000_000) == frozenset()
    operator.pause("b")
    operator.pause("a")
    assert trial.peek(["default", "a"]).paused == {"a", "b"}
    assert driver.beat("watcher", 60_000_000, 60_000_000) == {"a", "b"}
    operator.resume("a")
    assert trial.peek().paused == {"b"}
    assert driver.beat("watcher", 60_000_000, 60_000_000) == {"b"}
    driver.retire("watcher")


@rule("L9", "A pause outlives the driver object that made it", facts=[Fact.DURABLE])
def lasts(trial: Trial) -> None:
    other = trial.another()
    trial.push()
    other.operator().pause("default")
    other.close()
    trial.driver.close()
    assert trial.queue.pop() == []
    assert trial.another().pop() == []
    key = trial.another()
    key.operator().resume("default")
    assert key_of(trial.take()).id
