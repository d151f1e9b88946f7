"""L6, L7: a claim is one atomic step, bounded, and waits for nobody."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hesape.driver import Capability, Fact
from hesape.jobs import key_of
from hesape.records import Claim, Key, new_token
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually
from hesape_conformance.rules.order import numbers

if TYPE_CHECKING:
    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

MINUTE_US = 60_000_000


@rule("L6", "A process killed between pop and settle loses nothing: its jobs come back when the lease ends",
      facts=[Fact.MULTI_PROCESS])  # fmt: skip
def killed_holder(trial: Trial) -> None:
    pushed = trial.push_many(4)
    child = trial.child("hold", 3, 1.0)
    held = child.answer()
    child.kill()
    assert held == [job.id for job in pushed[:3]]
    assert sum(trial.tally()) == 4
    assert trial.take().id == pushed[3].id
    eventually(lambda: trial.tally()[0] == 3, "the leases end")
    jobs = trial.queue.pop(n=9)
    assert numbers(jobs) == [0, 1, 2]
    assert [job.attempts for job in jobs] == [2, 2, 2]


@rule("L6", "Processes killed at any moment leave each job pending, reserved, settled or deleted: never absent",
      facts=[Fact.MULTI_PROCESS])  # fmt: skip
def killed_anywhere(trial: Trial) -> None:
    pushed = {job.id for job in trial.push_many(trial.times(300, 800, 2000))}
    deleting: set[str] = set()
    for _ in range(trial.times(1, 6, 25)):
        child = trial.child("churn", 0.2)
        assert child.answer() == "ready"
        time.sleep(trial.random.uniform(0.0, 0.12))
        child.kill()
        deleting |= set(child.said())
        rows = trial.rows()
        assert sum(trial.tally()) == len(rows)
        assert pushed - rows.keys() <= deleting, "a job is absent that nobody was deleting"
    left = set(trial.rows())
    found: set[str] = set()

    def drained() -> bool:
        found.update(job.id for job in trial.queue.pop(n=500))
        return not trial.queue.counts().size - len(found)

    eventually(drained, "all that is left is delivered")
    failed = {row["id"] for row in trial.rows().values() if row["state"] == "failed"}
    assert found | failed == left


@rule("L6", "Deleting the last batch and claiming the next is one step, and tells what was lost")
def done_and_claim(trial: Trial) -> None:
    trial.push_many(5)
    claim = Claim(("default",), 2, MINUTE_US, new_token())
    first = trial.driver.reserve(claim)
    done = tuple(Key(row.id, claim.token) for row in first.rows)
    stale = Key(first.rows[0].id, new_token())
    second = trial.driver.reserve(Claim(("default",), 2, MINUTE_US, new_token(), done=(*done, stale)))
    assert second.lost == [stale]
    assert len(second.rows) == 2
    assert not {row.id for row in first.rows} & trial.rows().keys()
    gone = Claim(("default",), 2, MINUTE_US, new_token(), done=done)
    third = trial.driver.reserve(gone)
    assert sorted(third.lost) == sorted(done)
    again = trial.driver.reserve(gone._replace(repeat=True))
    assert again.lost == []
    assert again.rows == third.rows
    assert len(trial.rows()) == 3


@rule("L6", "Waiting takes nothing")
def wait_takes_nothing(trial: Trial) -> None:
    trial.push_many(2)
    with trial.unchanged():
        trial.driver.wait(["default"], 0.05)
    assert numbers(trial.queue.pop(n=5)) == [0, 1]


@rule("L7", "A claim takes at most n, however many are due, of whatever priority and queue")
def bounded(trial: Trial) -> None:
    many = trial.times(120, 300, 3000)
    for part in range(3):
        trial.queue.bulk(
            trial.grant(),
            [trial.job(queue=f"q{n % 3}", priority=trial.random.randrange(5)) for n in range(part, many, 3)],
        )
    total = 0
    for n in (1, 2, 1, 7, 20, 1):
        found = trial.queue.pop(["q0", "q1", "q2"], n=n)
        assert len(found) == n
        total += n
        assert sum(trial.queue.counts(queue).reserved for queue in ("q0", "q1", "q2")) == total
    jobs = trial.queue.pop("q0", n=5, lease=0.02)
    trial.outlive(jobs[-1])
    assert len(trial.queue.pop("q0", n=2)) == 2
    assert trial.queue.counts("q0").reserved <= total + 2


def _drained(queue: Queue, share: int) -> list[str]:
    done: list[str] = []
    while jobs := queue.pop(n=share):
        for job in jobs:
            job.delete()
            done.append(job.id)
    return done


@rule("L7", "Many threads, over one driver object and over their own, get different jobs and all of them")
def threads(trial: Trial) -> None:
    many = trial.times(80, 400, 4000)
    for queues in ([trial.queue] * 6, [trial.another() for _ in range(6)]):
        pushed = trial.push_many(many)
        with ThreadPoolExecutor(6) as pool:
            ends = [pool.submit(_drained, queue, 1 + n % 4) for n, queue in enumerate(queues)]
            found = [job_id for end in ends for job_id in end.result(60)]
        assert len(found) == len(set(found)), "a job was delivered twice"
        assert set(found) == {job.id for job in pushed}
        assert trial.rows() == {}


@rule("L7", "Many processes get different jobs and all of them, each in one delivery", facts=[Fact.MULTI_PROCESS])
def processes(trial: Trial) -> None:
    pushed = trial.push_many(trial.times(180, 300, 3000))
    children = [trial.child("drain", 30.0) for _ in range(trial.times(2, 4, 6))]
    for child in children:
        assert child.answer() == "ready"
    for child in children:
        child.tell()
    found = [job_id for child in children for job_id in child.answer()]
    assert len(found) == len(set(found)), "a job was delivered twice"
    assert set(found) == {job.id for job in pushed}
    assert trial.rows() == {}


@rule("L7", "Poppers, pushers, releasers and extenders at once neither deadlock nor lose anything")
def all_at_once(trial: Trial) -> None:
    turns = trial.times(15, 60, 400)

    def push() -> int:
        for n in range(turns):
            trial.queue.bulk(trial.grant(), [trial.job({"n": n}, priority=n % 3) for _ in range(2)])
        return 0

    def work(seed: int) -> int:
        deleted = 0
        for n in range(2 * turns):
            for job in trial.queue.pop(n=2):
                if (n + seed) % 4 == 0:
                    job.release()
                else:
                    job.extend(90)
                    job.delete()
                    deleted += 1
        return deleted

    with ThreadPoolExecutor(6) as pool:
        pushes = [pool.submit(push) for _ in range(2)]
        works = [pool.submit(work, seed) for seed in range(4)]
        for end in pushes:
            end.result(90)
        deleted = sum(end.result(90) for end in works)
    while jobs := trial.queue.pop(n=100):
        deleted += len(jobs)
        assert trial.driver.delete_jobs(jobs) == []
    assert deleted == 4 * turns
    assert trial.rows() == {}


@rule("L7", "A record that somebody has locked is left out, and nobody waits for it",
      capability=Capability.TRANSACTIONS, facts=[Fact.NETWORKED])  # fmt: skip
def locked_rows(trial: Trial) -> None:
    def calls(held: Job) -> float:
        start = time.monotonic()
        assert numbers(trial.queue.pop(n=5)) == [1, 2]
        assert trial.driver.rescue() == 0
        assert trial.queue.counts().size >= 2
        [deadline] = trial.driver._extend([key_of(held)], 120 * 1_000_000)  # noqa: SLF001 - a driver's own method is the subject
        assert deadline is not None
        return time.monotonic() - start

    trial.push_many(3)
    alone = calls(trial.take())
    trial.queue.operator().clear("default")
    trial.push_many(3)
    held = trial.take()
    loan = trial.lend()
    loan.begin()
    held.delete(tx=loan.connection)
    assert calls(held) < 1.0 + 10 * alone, "something waited for a record that is locked"
    loan.rollback()
