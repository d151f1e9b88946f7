"""L1, L2, L3, L5: what a reservation is, how it ends, and how it is extended."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hesape import errors, times
from hesape.driver import Capability, Fact
from hesape.jobs import attached
from hesape_conformance.catalogue import refusal, rule
from hesape_conformance.expect import eventually, raises
from hesape_conformance.rules.order import numbers

if TYPE_CHECKING:
    from hesape.jobs import Job
    from hesape_conformance.trial import Trial


@rule("L1", "A pop returns at most n jobs, and an empty list when nothing is due")
def at_most(trial: Trial) -> None:
    assert trial.queue.pop(n=10) == []
    trial.push_many(10)
    assert numbers(trial.queue.pop()) == [0]
    assert numbers(trial.queue.pop(n=3)) == [1, 2, 3]
    assert numbers(trial.queue.pop(n=1000)) == [4, 5, 6, 7, 8, 9]
    assert trial.queue.pop(n=5) == []
    trial.push(delay=60)
    assert trial.queue.pop(n=5) == []


@rule("L1", "A reserved job is delivered to nobody else while its lease runs")
def exclusive(trial: Trial) -> None:
    trial.push_many(3)
    jobs = trial.queue.pop(n=2)
    other = trial.another()
    assert numbers(other.pop(n=9)) == [2]
    for queue in (trial.queue, other):
        assert queue.pop(n=9) == []
    assert trial.driver.rescue() == 0
    assert other.pop(n=9) == []
    for job in jobs:
        job.delete()
    assert len(trial.rows()) == 1


@rule("L1", "n below one and a lease that isn't positive are refused, without a store")
def arguments(trial: Trial) -> None:
    trial.push()
    wrong: Any
    with trial.unchanged():
        for queue in (trial.queue, trial.without_store()):
            for wrong in (0, -1, 1.5, "1", True, None):
                with raises(errors.ArgumentInvalidError) as caught:
                    queue.pop(n=wrong)
                assert isinstance(caught.error, ValueError)
            for wrong in (0, -1, 0.0, timedelta(0), timedelta(seconds=-1)):
                with raises(errors.ArgumentInvalidError):
                    queue.pop(lease=wrong)
            with raises(errors.ArgumentInvalidError):
                queue.pop([])


@rule("L1", "A lease is counted from the store's now, in seconds or a timedelta")
def lease_length(trial: Trial) -> None:
    for lease, seconds in ((0.5, 0.5), (60, 60.0), (timedelta(minutes=5), 300.0), (86400 * 30, 86400.0 * 30)):
        trial.push()
        before = trial.driver.now()
        job = trial.queue.pop(lease=lease)[0]
        deadline = attached(job).reserved_until_us
        assert deadline is not None
        assert before <= deadline - round(seconds * 1e6) <= trial.driver.now()
        assert job.record().reserved_until == times.from_us(deadline)
        job.delete()


@rule("L1", "A worker that stopped beating is dead when its time is over, and rescue frees what it holds; no sooner")
def dead_by_beats(trial: Trial) -> None:
    living, dying = trial.held_by("living", ttl=60), trial.held_by("dying", ttl=0.8)
    nobody = trial.taken()
    assert trial.driver.rescue() == 0
    eventually(lambda: trial.driver.rescue() or trial.tally()[0], "the dead worker's job comes back")
    job = trial.take()
    assert (job.id, job.attempts) == (dying.id, 2)
    assert trial.row(job)["lapses"] == 1
    assert trial.row(living.id)["state"] == trial.row(nobody)["state"] == "reserved"
    assert [found.worker for found in trial.driver.workers()] == ["living"]
    nobody.delete()


@rule("L1", "A worker that is gone for certain is retired, and what it held is free at once")
def retired(trial: Trial) -> None:
    held, other = trial.held_by("gone"), trial.held_by("here")
    assert trial.driver.retire("gone") == 1
    assert trial.driver.retire("gone") == 0
    job = trial.take()
    assert (job.id, job.attempts, trial.row(job)["lapses"]) == (held.id, 2, 1)
    assert trial.row(other.id)["state"] == "reserved"
    assert [found.worker for found in trial.driver.workers()] == ["here"]


@rule("L1", "A killed worker's jobs run elsewhere long before its lease and its beats run out",
      capability=Capability.SESSION_LIVENESS, facts=[Fact.MULTI_PROCESS])  # fmt: skip
def dead_by_session(trial: Trial) -> None:
    pushed = trial.push_many(3)
    child = trial.child("hold", 2, 600.0, "victim", 600.0)
    assert child.answer() == [job.id for job in pushed[:2]]
    for _ in range(3):
        trial.driver.rescue()
    assert trial.tally() == (1, 0, 2, 0)
    child.kill()
    eventually(lambda: trial.driver.rescue() or trial.tally()[0] == 3, "its jobs come back", every_s=0.2, within_s=15)
    assert sorted(numbers(trial.queue.pop(n=5))) == [0, 1, 2]


@refusal(Capability.SESSION_LIVENESS)
def beats_only(trial: Trial) -> None:
    """Without it a worker lives exactly as long as its beats say, whatever became of its process."""
    trial.push()
    child = trial.child("hold", 1, 600.0, "victim", 600.0) if trial.declares(Fact.MULTI_PROCESS) else None
    if child is not None:
        child.answer()
        child.kill()
        assert trial.driver.rescue() == 0
        assert trial.tally() == (0, 0, 1, 0)
        assert trial.driver.retire("victim") == 1


@rule("L2", "Attempts count deliveries, this one included")
def attempts(trial: Trial) -> None:
    trial.push()
    for turn in range(1, 7):
        job = trial.take(lease=0.02 if turn % 2 else 60)
        assert job.attempts == turn
        assert trial.row(job)["attempts"] == turn
        if turn % 2:
            trial.outlive(job)
        else:
            job.release()


@rule("L2", "Lapses count deliveries that ended without an outcome, and any outcome resets them")
def lapses(trial: Trial) -> None:
    pushed = trial.push()
    for end, expected in (("expire", 0), ("expire", 1), ("release", 2), ("expire", 0), ("fail", 1), ("expire", 0)):
        job = trial.take(lease=0.02 if end == "expire" else 60)
        assert job.id == pushed.id
        assert trial.row(job)["lapses"] == attached(job).lapses == expected
        if end == "expire":
            trial.outlive(job)
        elif end == "release":
            job.release()
            assert trial.row(job)["lapses"] == 0
        else:
            job.fail("Boom")
            assert trial.row(job)["lapses"] == 0
            trial.queue.operator().retry(job.id)


@rule("L3", "A lease that runs out makes the job due again in the same place, one attempt spent")
def same_place(trial: Trial) -> None:
    trial.push_many(4)
    first = trial.queue.pop(n=2, lease=0.03)
    assert numbers(first) == [0, 1]
    trial.outlive(first[1])
    assert trial.tally() == (4, 0, 0, 0)
    again = trial.queue.pop(n=9)
    assert numbers(again) == [0, 1, 2, 3]
    assert [job.attempts for job in again] == [2, 2, 1, 1]
    assert [job.run_at for job in again[:2]] == [job.run_at for job in first]


@rule("L3", "Jobs that became due one after the other come back whole and in order, whatever the same object saw last")
def apart_in_time(trial: Trial) -> None:
    many = trial.times(8, 30, 60)
    for n in range(many):
        trial.push({"n": n})
    for lease in (60, 0.05, 0.05):
        jobs = trial.queue.pop(n=many, lease=lease)
        assert numbers(jobs) == list(range(many))
        if lease == 60:
            for job in jobs:
                job.release()
        else:
            trial.outlive(jobs[-1])
    assert numbers(trial.queue.pop(n=3)) == [0, 1, 2]
    assert numbers(trial.queue.pop(n=many)) == list(range(3, many))


@rule("L3", "It keeps its error, its exceptions and its priority")
def keeps(trial: Trial) -> None:
    trial.push(priority=3)
    job = trial.take()
    job.last_error, job.exceptions = "Boom: once", 1
    job.release()
    trial.outlive(trial.take(lease=0.02))
    again = trial.take()
    assert (again.last_error, again.exceptions, again.priority, again.attempts) == ("Boom: once", 1, 3, 3)


@rule("L3", "An expired lease is found by a pop of its queue, by whatever driver object, however many there are")
def found_by_others(trial: Trial) -> None:
    many = trial.times(20, 300, 2500)
    trial.push_many(many)
    jobs: list[Job] = []
    while part := trial.queue.pop(n=1000, lease=0.2):
        jobs += part
        if len(jobs) >= many:
            break
    trial.outlive(jobs[-1])
    found: list[Job] = []
    other = trial.another()
    while part := other.pop(n=1000):
        found += part
    assert numbers(found) == list(range(many))


@rule("L5", "Extending moves the deadline to the later of itself and now plus the lease, and returns it")
def later_of(trial: Trial) -> None:
    job = trial.taken()
    first = job.record().reserved_until
    assert first is not None
    for shorter in (0, -5, 1, 30.0, timedelta(seconds=59), timedelta(seconds=-1)):
        assert job.extend(shorter) == first
        assert job.record().reserved_until == first
    before = trial.driver.now()
    moved = job.extend(timedelta(minutes=10))
    assert before + 600_000_000 <= times.to_us(moved) <= trial.driver.now() + 600_000_000
    assert job.record().reserved_until == moved
    assert job.extend(0) == moved
    job.delete()


@rule("L5", "An extended job isn't delivered again when its first lease would have ended, and is when the new one has")
def holds(trial: Trial) -> None:
    trial.push_many(2)
    kept, brief = trial.queue.pop(n=2, lease=0.25)
    kept.extend(60)
    end = times.to_us(brief.extend(0.5))
    assert end < trial.driver.now() + 600_000
    trial.until(end)
    assert numbers(trial.queue.pop(n=5)) == numbers([brief])
    kept.delete()


@rule("L5", "Many are extended at once, and those that were lost are named")
def many_at_once(trial: Trial) -> None:
    trial.push_many(3)
    gone, lapsing, held = trial.queue.pop(n=3, lease=0.15)
    held.extend(60)
    gone.delete()
    trial.outlive(lapsing)
    again = trial.take()
    deadlines, lost = trial.driver.extend([gone, lapsing, held], 120)
    assert lost == [gone, lapsing]
    assert len(deadlines) == 1
    assert deadlines[0] > times.from_us(trial.driver.now() + 100_000_000)
    again.delete()
    with raises(errors.LeaseLostError):
        lapsing.extend(60)


@rule("L5", "Beats renew the lease of all that a worker holds, but what is left out, and tell what it holds")
def beats_renew(trial: Trial) -> None:
    lease = 1.5
    first, second = trial.held_by("busy", lease=lease), trial.held_by("busy", lease=lease)
    idle = trial.held_by("idle", lease=lease)
    found = {worker.worker: worker for worker in trial.driver.workers()}
    assert {name: worker.held for name, worker in found.items()} == {"busy": 2, "idle": 1}
    assert all(worker.since_us is not None for worker in found.values())
    before = trial.driver.now()
    trial.beating["busy"].beat("busy", 60_000_000, 60_000_000, [second.id])
    trial.until(before + round(lease * 1.1e6))
    back = trial.queue.pop(n=5)
    assert [job.id for job in back] == [second.id, idle.id]
    assert trial.row(first.id)["state"] == "reserved"
    assert trial.driver._extend([first], 0)[0] is not None  # noqa: SLF001 - a driver's own method is the subject
