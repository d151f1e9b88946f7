"""S5, S7: settling when something goes wrong, and what a handler settled itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from hesape import errors
from hesape.driver import Fact
from hesape.jobs import key_of
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises
from hesape_conformance.faulty import Faulty, impatient
from hesape_conformance.relay import Relay

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job
    from hesape_conformance.trial import Trial

RETRIED = (errors.StoreUnavailableError, errors.StoreBusyError, errors.OutcomeUnknownError)
ENDS: dict[str, Callable[[Job], None]] = {
    "_delete": lambda job: job.delete(),
    "_release": lambda job: job.release(60),
    "_fail": lambda job: job.fail("Boom"),
}
AFTER = {"_delete": (0, 0, 0, 0), "_release": (0, 1, 0, 0), "_fail": (0, 0, 0, 1)}


@rule("S5", "A settlement whose connection broke before or after it was done is repeated, and done once")
def broken(trial: Trial) -> None:
    for method, settle in ENDS.items():
        for error in RETRIED:
            for after in (False, True):
                if after and error is not errors.OutcomeUnknownError and method == "_delete":
                    continue  # a driver that says "surely not written" after it wrote would be lying
                job = trial.taken()
                with Faulty(trial.driver, method, error, after=after, times=2) as faulty:
                    settle(job)
                assert faulty.calls == 3
                assert job.is_settled
                assert trial.tally() == AFTER[method], f"{method} after {error.__name__}"
                trial.queue.operator().clear("default")
                trial.queue.operator().flush()


@rule("S5", "An extension and a hand-back are repeated too")
def others(trial: Trial) -> None:
    for error in RETRIED:
        job = trial.taken()
        with Faulty(trial.driver, "_extend", error, after=True, times=2):
            job.extend(120)
        with Faulty(trial.driver, "_hand_back", error, after=True, times=2):
            trial.driver.hand_back([job])
        assert trial.tally() == (1, 0, 0, 0)
        assert trial.take().attempts == 1
        trial.queue.operator().clear("default")


@rule("S5", "A claim whose answer was lost is repeated, and spends no further attempt")
def claim(trial: Trial) -> None:
    for error in RETRIED:
        trial.push_many(3)
        with Faulty(trial.driver, "reserve", error, after=True, times=2) as faulty:
            jobs = trial.queue.pop(n=2)
        assert faulty.calls == 3
        assert [job.attempts for job in jobs] == [1, 1]
        assert trial.tally() == (1, 0, 2, 0)
        trial.queue.operator().clear("default")


@rule("S5", "It is repeated until the lease ends, with pauses, and then the error is told")
def until_the_end(trial: Trial) -> None:
    trial.push()
    job = trial.take(lease=0.5)
    start = time.monotonic()
    failing = Faulty(trial.driver, "_delete", errors.StoreUnavailableError, times=10_000)
    with impatient(0.1), failing as faulty, raises(errors.StoreUnavailableError):
        job.delete()
    assert 0.2 < time.monotonic() - start < 10
    assert 3 <= faulty.calls < 60
    assert not job.is_settled
    trial.outlive(job)
    assert trial.take().id == job.id


@rule("S5", "A refusal of the store is told at once, and the job stays as it was")
def refused(trial: Trial) -> None:
    for method, settle in ENDS.items():
        job = trial.taken()
        failing = Faulty(trial.driver, method, errors.StoreRefusedError)
        with failing as faulty, trial.unchanged(), raises(errors.StoreRefusedError):
            settle(job)
        assert faulty.calls == 1
        assert not job.is_settled
        settle(job)
        assert job.is_settled
        trial.queue.operator().clear("default")


@rule("S5", "Each settlement survives a real cut before it, and one at each reply", facts=[Fact.NETWORKED])
def real_cuts(trial: Trial) -> None:
    server = trial.harness.endpoint()
    assert server is not None
    with Relay(server) as relay:
        queue = trial.via(relay.endpoint)
        queue.driver.ping()
        for method, settle in ENDS.items():
            cuts = 0
            while True:
                queue.push(trial.grant(), trial.job())
                job = trial.take(queue=queue)
                relay.cut_at_reply(cuts or None)
                if not cuts:
                    relay.cut()
                settle(job)
                done = cuts > 0 and not relay.was_cut
                relay.cut_at_reply(None)
                assert trial.tally() == AFTER[method], f"{method}, cut at reply {cuts}"
                trial.queue.operator().clear("default")
                trial.queue.operator().flush()
                if done:
                    break
                cuts += 1
        queue.close()


@rule("S7", "A settled job is left alone by everything that a worker does to what it holds")
def left_alone(trial: Trial) -> None:
    for settle in ENDS.values():
        job = trial.taken()
        settle(job)
        with trial.unchanged():
            trial.driver.hand_back([job])
            trial.driver._hand_back([key_of(job)])  # noqa: SLF001 - a driver's own method is the subject
            assert trial.driver.extend([job], 600) == ([], [job])
            trial.driver.beat("worker", 60_000_000, 60_000_000)
            trial.driver.retire("worker")
            trial.driver.rescue()
            job.mark_as_failed()
        trial.queue.operator().clear("default")
        trial.queue.operator().flush()
