"""W1: a waiter wakes early."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hesape.driver import Capability, Fact
from hesape_conformance.catalogue import refusal, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape_conformance.trial import Trial

WAKES = Capability.NOTIFICATIONS
SOON_S = 2.5


def woken(trial: Trial, act: Callable[[], object], queues: tuple[str, ...] = ("default",)) -> float:
    """How long a waiter slept on when something that wakes it was done; fails when it slept its full ten seconds."""
    driver = trial.another().driver
    driver.wait(queues, 0.01)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(driver.wait, queues, 10.0)
        time.sleep(0.15)
        act()
        start = time.monotonic()
        assert waiter.result(15) is True
        return time.monotonic() - start


@rule("W1", "A push wakes a waiter, whichever door it took", capability=WAKES)
def pushes(trial: Trial) -> None:
    grant = trial.grant()
    acts: list[Callable[[], object]] = [
        lambda: trial.queue.push(grant, trial.job()),
        lambda: trial.queue.bulk(grant, [trial.job(), trial.job()]),
        lambda: trial.queue.push_on(grant, "default", trial.job()),
    ]
    for act in acts:
        assert woken(trial, act) < SOON_S


@rule("W1", "A release, and a retry, wake a waiter too", capability=WAKES)
def comes_back(trial: Trial) -> None:
    job = trial.taken()
    assert woken(trial, job.release) < SOON_S
    job = trial.take()
    job.fail("Boom")
    assert woken(trial, lambda: trial.queue.operator().retry(job.id)) < SOON_S


@rule("W1", "A push of another process wakes a waiter", capability=WAKES, facts=[Fact.MULTI_PROCESS])
def other_process(trial: Trial) -> None:
    def push() -> None:
        trial.child("push", "acme", [{"n": 1}]).answer()

    assert woken(trial, push) < SOON_S


@rule("W1", "One of several queues is enough", capability=WAKES)
def several_queues(trial: Trial) -> None:
    assert woken(trial, lambda: trial.push(queue="b"), ("a", "b", "c")) < SOON_S


@rule("W1", "A commit wakes, not the push before it", capability=WAKES)
def at_commit(trial: Trial) -> None:
    if not trial.claims(Capability.TRANSACTIONS):
        assert woken(trial, trial.push) < SOON_S
        return
    loan = trial.lend()
    loan.begin()
    trial.queue.push(trial.grant(), trial.job(), tx=loan.connection)
    assert woken(trial, loan.commit) < SOON_S


@rule("W1", "With nothing to wake it a waiter sleeps its time, and doesn't spin", capability=WAKES)
def sleeps(trial: Trial) -> None:
    asleep(trial)


@refusal(WAKES)
def asleep(trial: Trial) -> None:
    """Without notifications, and without news, `wait` sleeps about as long as it was told to and answers False."""
    trial.driver.wait(["default"], 0.01)
    share = _share_of_processor()
    start, work = time.monotonic(), time.process_time()
    assert trial.driver.wait(["default"], 0.4) is False
    assert 0.3 < time.monotonic() - start < 5
    assert time.process_time() - work < 0.02 + 0.1 * share, "waiting burns the processor"
    start = time.monotonic()
    trial.driver.wait(["default"], 0.0)
    assert time.monotonic() - start < 1
    trial.push()
    assert len(trial.queue.pop()) == 1


def _share_of_processor() -> float:
    """How much of a processor this process gets when it wants all of one: little on a busy machine."""
    start, work = time.monotonic(), time.process_time()
    while time.monotonic() - start < 0.1:
        pass
    return (time.process_time() - work) / (time.monotonic() - start)
