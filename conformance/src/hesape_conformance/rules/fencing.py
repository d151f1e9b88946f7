"""L4: only the current delivery settles its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import errors
from hesape.jobs import key_of
from hesape.records import Claim, Key, new_token
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import raises

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.driver import Driver
    from hesape.jobs import Job
    from hesape_conformance.trial import Trial

MINUTE_US = 60_000_000

SETTLEMENTS: dict[str, Callable[[Job], object]] = {
    "delete": lambda job: job.delete(),
    "release": lambda job: job.release(),
    "release later": lambda job: job.release(30, spent=False),
    "fail": lambda job: job.fail("Stale: me"),
    "extend": lambda job: job.extend(600),
    "look": lambda job: job.extend(0),
}


def release(driver: Driver, key: Key, *, delay_us: int = 0, spent: bool = True, error: str | None = None) -> bool:
    """Release a delivery by its key."""
    return driver._release(key, delay_us=delay_us, spent=spent, error=error, exceptions=1, tx=None)  # noqa: SLF001


def fail(driver: Driver, key: Key, error: str | None = "Boom") -> bool:
    """Fail a delivery by its key."""
    return driver._fail(key, error=error, exceptions=1, tx=None)  # noqa: SLF001 - a driver's own methods are the subject


def delete(driver: Driver, *keys: Key, repeat: bool = False) -> list[Key]:
    """Delete deliveries by their keys; the lost ones."""
    return driver._delete(keys, repeat=repeat, tx=None)  # noqa: SLF001


def refused(trial: Trial, job: Job) -> None:
    """Expect that a stale delivery can't settle in any way, and that nothing changes."""
    with trial.unchanged():
        for what, settle in SETTLEMENTS.items():
            with raises(errors.LeaseLostError):
                settle(job)
            assert not job.is_settled, what
        assert trial.driver.delete_jobs([job]) == [job]
        trial.driver.hand_back([job])


@rule("L4", "A delivery whose lease ran out settles nothing, even before somebody else took the job")
def lapsed(trial: Trial) -> None:
    job = trial.lapsed()
    refused(trial, job)
    assert trial.take().attempts == 2


@rule("L4", "A delivery whose job was delivered again settles nothing")
def delivered_again(trial: Trial) -> None:
    stale = trial.lapsed()
    current = trial.take()
    assert current.id == stale.id
    refused(trial, stale)
    current.delete()
    assert trial.rows() == {}


@rule("L4", "A delivery whose job was settled by a later one brings nothing back")
def settled_by_other(trial: Trial) -> None:
    ends: dict[str, Callable[[Job], None]] = {
        "delete": lambda job: job.delete(),
        "fail": lambda job: job.fail("Boom"),
        "release": lambda job: job.release(60),
    }
    for end in ends.values():
        stale = trial.lapsed()
        end(trial.take())
        refused(trial, stale)
        trial.queue.operator().clear("default")


@rule("L4", "A delivery that was rescued, retired, handed back, cleared or retried settles nothing")
def taken_away(trial: Trial) -> None:
    driver = trial.driver
    retired = trial.held_by("gone")
    driver.retire("gone")
    handed = key_of(trial.taken(priority=1))
    driver._hand_back([handed])  # noqa: SLF001
    cleared = key_of(trial.taken(queue="cleared"))
    trial.queue.operator().clear("cleared")
    retried = key_of(trial.parked(queue="retried"))
    trial.queue.operator().retry(retried.id)
    for key in (retired, handed, cleared, retried):
        with trial.unchanged():
            assert delete(driver, key) == [key]
            assert not release(driver, key)
            assert not fail(driver, key)
            assert driver._extend([key], MINUTE_US) == [None]  # noqa: SLF001


@rule("L4", "A made-up token, another job's, or that of an unknown job settles nothing")
def made_up(trial: Trial) -> None:
    job, other = trial.taken(), trial.taken()
    driver = trial.driver
    unknown = trial.job().id
    with trial.unchanged():
        for key in (
            Key(job.id, new_token()),
            Key(job.id, b""),
            Key(job.id, b"\0" * 16),
            Key(job.id, key_of(other).token),
            Key(job.id, key_of(job).token[:-1]),
            Key(unknown, key_of(job).token),
        ):
            assert delete(driver, key) == [key]
            assert not release(driver, key)
            assert not fail(driver, key)
            assert driver._extend([key], MINUTE_US) == [None]  # noqa: SLF001
            driver._hand_back([key])  # noqa: SLF001
    waiting, parked = trial.push(queue="waiting"), trial.parked(queue="parked")
    with trial.unchanged():
        for job_id in (waiting.id, parked.id):
            for token in (b"", b"\0" * 16, new_token()):
                assert delete(driver, Key(job_id, token)) == [Key(job_id, token)]
                assert not release(driver, Key(job_id, token))


@rule("L4", "Repeating a claim returns the same batch as it is, and spends no further attempt")
def repeated_claim(trial: Trial) -> None:
    trial.push_many(5)
    claim = Claim(("default",), 3, MINUTE_US, new_token())
    first = trial.driver.reserve(claim)
    other = trial.another().driver
    for driver in (trial.driver, other):
        with trial.unchanged():
            again = driver.reserve(claim._replace(repeat=True))
        assert again.rows == first.rows
    assert [row.attempts for row in first.rows] == [1, 1, 1]
    delete(trial.driver, Key(first.rows[1].id, claim.token))
    again = trial.driver.reserve(claim._replace(repeat=True))
    assert [row.id for row in again.rows] == [first.rows[0].id, first.rows[2].id]
    assert len(trial.driver.reserve(claim._replace(token=new_token())).rows) == 2


@rule("L4", "Repeating an empty claim may find what became due meanwhile, under its token, once")
def repeated_empty(trial: Trial) -> None:
    claim = Claim(("default",), 3, MINUTE_US, new_token())
    assert trial.driver.reserve(claim).rows == []
    pushed = trial.push_many(2)
    for _ in range(2):
        found = trial.driver.reserve(claim._replace(repeat=True))
        assert [row.id for row in found.rows] == [job.id for job in pushed]
        assert [row.attempts for row in found.rows] == [1, 1]


@rule("L4", "Repeating a release or a fail under its token is a no-op, until the next delivery")
def repeated_settlement(trial: Trial) -> None:
    driver = trial.driver
    key = key_of(trial.taken())
    assert release(driver, key, delay_us=MINUTE_US, error="First: error")
    with trial.unchanged():
        assert release(driver, key, delay_us=0, spent=False, error="Second: error")
        assert not fail(driver, key)
    assert trial.tally() == (0, 1, 0, 0)
    key = key_of(trial.taken(queue="fail"))
    assert fail(driver, key, "First: error")
    with trial.unchanged():
        assert fail(driver, key, "Second: error")
        assert not release(driver, key)
    key = key_of(trial.taken(queue="next"))
    assert release(driver, key)
    current = trial.take("next")
    with trial.unchanged():
        assert not release(driver, key)
        assert not fail(driver, key)
        assert delete(driver, key) == [key]
    current.fail("Boom")
    with trial.unchanged():
        assert not fail(driver, key)


@rule("L4", "A repeated release whose delay is over still is a no-op while nobody took the job")
def repeated_when_due(trial: Trial) -> None:
    key = key_of(trial.taken())
    assert release(trial.driver, key, delay_us=30_000)
    trial.until(trial.driver.now() + 60_000)
    trial.peek(["other"])
    assert release(trial.driver, key, delay_us=MINUTE_US)
    assert trial.tally() == (1, 0, 0, 0)
    assert trial.take().attempts == 2


@rule("L4", "A delete of an absent job is lost, or, as a repeat, done")
def repeated_delete(trial: Trial) -> None:
    driver = trial.driver
    key = key_of(trial.taken())
    assert delete(driver, key) == []
    assert delete(driver, key) == [key]
    assert delete(driver, key, repeat=True) == []
    stale = trial.lapsed()
    with trial.unchanged():
        assert delete(driver, key_of(stale), repeat=True) == [key_of(stale)]
        trial_key = key_of(stale)
    current = trial.take()
    with trial.unchanged():
        assert delete(driver, trial_key, repeat=True) == [trial_key]
    current.delete()


@rule("L4", "Deliveries without a worker are ended by their lease alone")
def without_worker(trial: Trial) -> None:
    job = trial.taken()
    trial.driver.retire("")
    trial.driver.rescue()
    assert trial.tally() == (0, 0, 1, 0)
    job.delete()


@rule("L4", "Each delivery has a token of its own, and a job doesn't show it")
def tokens(trial: Trial) -> None:
    trial.push_many(2)
    one, two = trial.take(), trial.take()
    assert key_of(one).token != key_of(two).token
    assert len(key_of(one).token) == 16
    first = key_of(one)
    one.release()
    assert key_of(trial.take()).token != first.token
    for text in (repr(one), repr(one.record()), str(one.record())):
        assert first.token.hex() not in text
        assert repr(first.token)[2:-1] not in text
