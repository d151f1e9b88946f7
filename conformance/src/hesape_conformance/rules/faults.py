"""E1, E2, E3: a store out of reach, threads and forks, a store that takes no more."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import hesape
from hesape import errors
from hesape.driver import Fact
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually, raises
from hesape_conformance.faulty import Faulty, impatient
from hesape_conformance.relay import Relay
from hesape_conformance.rules.order import numbers
from hesape_conformance.trial import NAME, READ

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

LONG_S = 30.0
UNREACHABLE = (errors.StoreUnavailableError, errors.StoreBusyError)


@contextmanager
def breakable(trial: Trial) -> Iterator[tuple[Queue, Callable[[], object], Callable[[], object]]]:
    """A queue whose store can be taken away and given back."""
    if trial.declares(Fact.NETWORKED):
        server = trial.harness.endpoint()
        assert server is not None, "a networked driver's harness tells the server's endpoint"
        with Relay(server) as relay:
            queue = trial.via(relay.endpoint)
            yield queue, relay.refuse, relay.accept
            queue.close()
        return
    with ExitStack() as stack:

        def begin() -> None:
            stack.enter_context(trial.harness.outage(trial.namespace))

        yield trial.queue, begin, stack.close


def unreachable(call: Callable[[], object]) -> None:
    """Expect a call to fail within a while because the store can't be reached, saying why and that a retry can help."""
    start = time.monotonic()
    try:
        call()
    except UNREACHABLE as error:
        assert error.retryable
        assert error.code in {"store-unavailable", "store-busy"}
        assert error.__cause__ is not None, "the client library's error isn't the cause"
        assert not isinstance(error.__cause__, errors.HesapeError)
    except errors.HesapeError as error:
        message = f"expected StoreUnavailableError, found {type(error).__name__}: {error}"
        raise AssertionError(message) from error
    else:
        message = "a call succeeded without a store"
        raise AssertionError(message)
    assert time.monotonic() - start < LONG_S


@rule("E1", "A store out of reach says so with the cause, nothing is stored, and the same object works again",
      facts=[Fact.DURABLE])  # fmt: skip
def outage(trial: Trial) -> None:
    with breakable(trial) as (queue, begin, end):
        queue.push(trial.grant(), trial.job({"n": 0}))
        held = trial.take(queue=queue)
        queue.push(trial.grant(), trial.job({"n": 1}))
        begin()
        calls: list[Callable[[], object]] = [
            lambda: queue.push(trial.grant(), trial.job({"n": 9})),
            queue.pop,
            lambda: queue.bulk(trial.grant(), [trial.job({"n": 9})]),
        ]
        with impatient(trial.times(0.1, 0.5, 2.0)):
            for call in calls[: trial.times(1, 3, 3)]:
                unreachable(call)
        end()
        queue.push(trial.grant(), trial.job({"n": 2}))
        assert numbers(queue.pop(n=9)) == [1, 2]
        held.delete()
        assert len(trial.rows()) == 2


@rule("E1", "A short outage in the middle of a call is ridden out", facts=[Fact.DURABLE])
def ridden_out(trial: Trial) -> None:
    with breakable(trial) as (queue, begin, end):
        queue.push(trial.grant(), trial.job({"n": 0}))
        job = trial.take(queue=queue)
        for call in (lambda: queue.push(trial.grant(), trial.job({"n": 1})), job.delete):
            begin()
            timer = threading.Timer(0.4, end)
            timer.start()
            work = time.process_time()
            call()
            assert time.process_time() - work < 0.35, "waiting for the store burns the processor"
            timer.join()
        assert numbers(queue.pop(n=9)) == [1]
        assert len(trial.rows()) == 1


@rule("E1", "An address where nobody listens is StoreUnavailableError", facts=[Fact.NETWORKED])
def nobody_listens(trial: Trial) -> None:
    with Relay(("127.0.0.1", 9)) as relay:
        nobody = relay.endpoint
    queue = trial.via(nobody)
    unreachable(queue.driver.ping)
    unreachable(lambda: queue.push(trial.grant(), trial.job()))
    unreachable(queue.pop)
    with raises(errors.ForgedError):
        forged = trial.job()
        forged.action = "root"
        queue.push(trial.grant(), forged)


@rule("E1", "The same object works after the server ended its sessions", facts=[Fact.NETWORKED])
def sessions_cut(trial: Trial) -> None:
    trial.push({"n": 0})
    held = trial.take()
    trial.driver.beat("worker", 60_000_000, 60_000_000)
    for n in range(1, 4):
        trial.harness.cut_sessions()
        trial.push({"n": n})
    trial.harness.cut_sessions()
    assert numbers(trial.queue.pop(n=9)) == [1, 2, 3]
    trial.harness.cut_sessions()
    held.delete()
    trial.driver.beat("worker", 60_000_000, 60_000_000)
    assert len(trial.rows()) == 3


@rule("E1", "The same object works after the server was stopped and after it was killed", facts=[Fact.NETWORKED])
def server_restart(trial: Trial) -> None:
    for n, end in enumerate((lambda: None, trial.harness.kill)):
        trial.push({"n": n})
        held = trial.take(lease=300)
        trial.push({"n": 10 + n})
        end()
        trial.harness.restart()
        eventually(lambda: _works(trial), "the driver works again", within_s=LONG_S)
        held.delete()
        assert numbers(trial.queue.pop(n=9)) == [10 + n]


def _works(trial: Trial) -> bool:
    try:
        trial.driver.ping()
    except errors.StoreUnavailableError:
        return False
    return True


@rule("E1", "A store that fails for good is told so after a while, each try later than the last")
def patience(trial: Trial) -> None:
    job = trial.job()
    for error in (errors.StoreUnavailableError, errors.StoreBusyError)[: trial.times(1, 2, 2)]:
        with Faulty(trial.driver, "_store", error, times=10_000) as faulty:
            start = time.monotonic()
            with raises(error):
                trial.queue.push(trial.grant(), job)
            assert time.monotonic() - start < 10
        assert 3 <= faulty.calls < 40
    refusing = Faulty(trial.driver, "_store", errors.StoreRefusedError, times=10_000)
    with refusing as faulty, raises(errors.StoreRefusedError):
        trial.queue.push(trial.grant(), job)
    assert faulty.calls == 1, "a refusal was repeated"
    assert trial.rows() == {}


@rule("E1", "Every error is a HesapeError with a code of its own, says what it is, and survives pickling")
def error_classes(trial: Trial) -> None:
    kinds = [getattr(hesape, name) for name in errors.__all__]
    assert len({kind.code for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert issubclass(kind, errors.HesapeError)
        error = kind("what was found")
        error.index = 3
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - made one line above
        assert (type(again), str(again), again.index, again.code) == (kind, "what was found", 3, kind.code)
        assert str(kind())
    assert issubclass(errors.ArgumentInvalidError, ValueError)
    with raises(errors.DuplicateJobError) as caught:
        trial.push({"n": 2}, id=trial.push({"n": 1}).id)
    assert str(pickle.loads(pickle.dumps(caught.error))) == str(caught.error)  # noqa: S301


@rule("E2", "One driver object serves many threads, each call its own answer")
def threads(trial: Trial) -> None:
    each = trial.times(6, 25, 200)

    def work(name: int) -> int:
        for n in range(each):
            job = trial.push({"who": name, "n": n}, queue=f"q{name}")
            found = trial.take(f"q{name}")
            assert (found.id, found.decode()) == (job.id, {"who": name, "n": n})
            trial.queue.counts(f"q{name}")
            if n % 3:
                found.delete()
            else:
                found.fail("Boom")
                trial.queue.find(trial.grant(action=READ), found.id)
        return len(trial.queue.failed(trial.grant(action=READ), queue=f"q{name}", limit=1000))

    with ThreadPoolExecutor(8) as pool:
        failed = [end.result(90) for end in [pool.submit(work, n) for n in range(8)]]
    assert failed == [(each + 2) // 3] * 8
    assert sum(failed) == len(trial.rows())


@rule("E2", "Closing twice does nothing, and a closed driver opens anew")
def closed(trial: Trial) -> None:
    trial.push()
    for _ in range(2):
        trial.driver.close()
        trial.driver.close()
        assert trial.queue.counts().size == 1
    trial.another().close()
    assert len(trial.queue.pop()) == 1


@rule("E2", "A forked child opens its own connections, and its parent's go on", facts=[Fact.MULTI_PROCESS])
def forks(trial: Trial) -> None:
    before, mine, theirs = trial.child("fork", "acme").answer()
    for found in theirs:
        assert isinstance(found, list), found
    ids = [*before, *mine, *(job_id for found in theirs for job_id in found[:-1])]
    assert len(ids) == 31
    assert len(set(ids)) == 31, "a forked child minted its parent's ids"
    assert trial.rows().keys() == set(ids)


@rule("E3", "A store that takes no more says so, stores nothing, and keeps what it had", facts=[Fact.DURABLE])
def full(trial: Trial) -> None:
    trial.push_many(3)
    held = trial.take()
    before = trial.rows()
    with trial.harness.full(trial.namespace):
        for push in (
            lambda: trial.push("x" * 30_000),
            lambda: trial.queue.bulk(trial.grant(), [trial.job("x" * 30_000) for _ in range(200)]),
            lambda: trial.queue.later(trial.grant(), 5, trial.job("x" * 30_000)),
            lambda: trial.queue.push_raw(trial.grant(), NAME, b'"' + b"x" * 30_000 + b'"'),
        ):
            start = time.monotonic()
            with raises(errors.StoreRefusedError) as caught:
                push()
            assert not caught.error.retryable
            assert caught.error.__cause__ is not None
            assert time.monotonic() - start < LONG_S
        assert trial.rows() == before
        assert trial.queue.counts().size == 3
    trial.push({"n": 3})
    held.delete()
    assert numbers(trial.queue.pop(n=9)) == [1, 2, 3]
