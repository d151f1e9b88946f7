"""K1: locks, counters and flags."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape.driver import Fact
from hesape_conformance.catalogue import rule
from hesape_conformance.expect import eventually, raises

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial


@rule("K1", "A lock is held by one owner, renewed by it alone, and freed by it alone")
def lock(trial: Trial) -> None:
    other = trial.another()
    mine, yours = trial.queue.lock("l", 60, owner="me"), other.lock("l", 60, owner="you")
    assert mine.take()
    assert not yours.take()
    assert mine.take()
    assert other.lock("l", 60, owner="me").take()
    assert not yours.free()
    assert not yours.take()
    assert not trial.queue.lock("l", 60).take(), "a random owner took a held lock"
    assert mine.free()
    assert not mine.free()
    assert yours.take()
    assert not mine.take()
    assert trial.queue.lock("L", 60, owner="me").take()


@rule("K1", "As a context manager a lock is held for the block, and refused by name when it is somebody else's")
def lock_block(trial: Trial) -> None:
    with trial.queue.lock("l", 60), raises(errors.LockHeldError, "l"):
        trial.queue.lock("l", 60).__enter__()
    with raises(ZeroDivisionError), trial.queue.lock("l", 60):
        _ = 1 / 0
    assert trial.queue.lock("l", 60).take()


@rule("K1", "A lock ends by the store's clock, unless its owner renews it")
def lock_expires(trial: Trial) -> None:
    before = trial.driver.now()
    half = 0.15
    mine, yours = trial.queue.lock("l", 2 * half, owner="me"), trial.queue.lock("l", timedelta(minutes=1), owner="you")
    assert mine.take()
    trial.until(before + round(half * 1e6))
    assert mine.take()
    renewed = trial.driver.now()
    eventually(yours.take, "the lock ends")
    assert trial.driver.now() >= before + round(3 * half * 1e6)
    assert trial.driver.now() - renewed < 5_000_000
    assert not mine.take()
    assert not mine.free()


@rule("K1", "A counter adds up, starts anew when its time is over, and looking changes nothing")
def counter(trial: Trial) -> None:
    life = 400_000
    counted = trial.queue.counter("c", life / 1e6)
    assert counted.value() == 0
    before = trial.driver.now()
    assert [counted.add(), counted.add(), counted.add(5), counted.add(-2)] == [1, 2, 7, 5]
    value, end = counted.look()
    assert value == 5
    assert before + life <= end <= trial.driver.now() + life
    assert counted.look() == (5, end)
    assert trial.another().counter("c", 60).value() == 5
    trial.until(end)
    assert counted.value() == 0
    assert counted.add() == 1
    assert trial.queue.counter("C", 60).value() == 0


@rule("K1", "A flag is seen by everybody until it is erased or its time is over")
def flag(trial: Trial) -> None:
    lasting, brief = trial.queue.flag("f"), trial.queue.flag("brief", 0.3)
    other = trial.another()
    assert lasting.value() is None
    for value in ("1", "restart", "🦊" * 255, "'%s\\"):
        lasting.set(value)
        assert other.flag("f").value() == value
    lasting.erase()
    lasting.erase()
    assert other.flag("f").value() is None
    brief.set("soon over")
    assert other.flag("brief").value() == "soon over"
    eventually(lambda: other.flag("brief").value() is None, "the flag's time is over")
    brief.set("again")
    trial.queue.flag("brief").set("for good")
    trial.until(trial.driver.now() + 350_000)
    assert brief.value() == "for good"


@rule("K1", "Locks, counters, flags and unique keys of one name are different things")
def apart(trial: Trial) -> None:
    assert trial.queue.lock("x", 60, owner="me").take()
    assert trial.queue.counter("x", 60).add() == 1
    assert trial.queue.flag("x").value() is None
    trial.queue.flag("x").set("f")
    assert trial.queue.lock("x", 60, owner="me").free()
    assert trial.queue.counter("x", 60).value() == 1
    assert trial.queue.flag("x").value() == "f"


@rule("K1", "Many threads count every one, and one of them has the lock")
def threads(trial: Trial) -> None:
    each = trial.times(10, 40, 400)
    counted = trial.queue.counter("c", 60)

    def work(name: int) -> bool:
        for _ in range(each):
            counted.add()
        return trial.queue.lock("l", 60, owner=f"owner {name}").take()

    with ThreadPoolExecutor(6) as pool:
        had = [end.result(60) for end in [pool.submit(work, n) for n in range(6)]]
    assert counted.value() == 6 * each
    assert sum(had) == 1


@rule("K1", "Another process sees the lock", facts=[Fact.MULTI_PROCESS])
def other_process(trial: Trial) -> None:
    assert trial.queue.lock("l", 60, owner="me").take()
    assert trial.child("take_locks", ["l", "m"], "child", 60.0).answer() == [False, True]
    assert not trial.queue.lock("m", 60, owner="me").take()


@rule("K1", "What isn't a key, a time or a value is refused, without a store")
def refused(trial: Trial) -> None:
    wrong: Any
    for queue in (trial.queue, trial.without_store()):
        for wrong in ("", None, 7, b"k"):
            for make in (queue.lock, queue.counter, queue.flag):
                with raises(errors.ArgumentInvalidError):
                    make(wrong, 60)
        for wrong in (0, -1, timedelta(0)):
            for make in (queue.lock, queue.counter, queue.flag):
                with raises(errors.ArgumentInvalidError):
                    make("k", wrong)
        for wrong in ("", "a\nb", "x" * 256, 7, None):
            with raises(errors.NameInvalidError):
                queue.flag("k").set(wrong)
    assert trial.raw.entries() == 0
