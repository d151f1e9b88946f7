"""One job at a time: a lock of the job's tenant that never outlives the job's lease."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from hesape.coordination import Lock
from hesape.errors import ArgumentInvalidError, InvalidError, StoreUnavailableError, UnsupportedError
from hesape.jobs import Job
from hesape.middleware import without_overlapping
from hesape.testing import FakeJob

if TYPE_CHECKING:
    from middleware.conftest import Bench


def lock_of(bench: Bench, *, tenant: str = "acme", name: str = "write", key: str = "", ttl: float = 60) -> Lock:
    """The middleware's lock, as somebody else would ask for it."""
    parts = ("overlap", tenant, name, key)
    return Lock(bench.driver, "".join(f"{len(part)}:{part}" for part in parts), ttl)


class Most:
    """Counts how many run at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.runs = 0
        self._guard = threading.Lock()

    def run(self, seconds: float = 0.02) -> None:
        with self._guard:
            self.now += 1
            self.runs += 1
            self.most = max(self.most, self.now)
        time.sleep(seconds)  # the handler's work
        with self._guard:
            self.now -= 1


def test_jobs_of_one_name_run_one_at_a_time_and_all_of_them_run(bench: Bench) -> None:
    most = Most()
    bench.app.handler("write", middleware=[without_overlapping(release_after=0.05)])(lambda: most.run())  # noqa: PLW0108 - a handler is a function
    for _ in range(6):
        bench.push("write")
    bench.start(concurrency=4)
    bench.until(lambda: most.runs == 6)
    bench.until(lambda: bench.counts() == (0, 0, 0, 0))
    assert most.most == 1


def test_another_tenants_job_another_key_and_another_name_do_not_wait(bench: Bench) -> None:
    most, gate = Most(), threading.Barrier(4, timeout=10)

    def write(row: int) -> None:
        gate.wait()
        most.run()

    around = [without_overlapping(lambda job: str(job.decode()["row"]), release_after=30)]
    bench.app.handler("write", middleware=around)(write)
    bench.app.handler("other", middleware=around)(write)
    bench.push("write", {"row": 1})
    bench.push("write", {"row": 2})
    bench.push("write", {"row": 1}, tenant="globex")
    bench.push("other", {"row": 1})
    bench.work(concurrency=4)
    assert most.runs == 4


def test_shared_excludes_jobs_of_other_names_with_the_same_key(bench: Bench) -> None:
    started, gate = threading.Event(), threading.Event()

    @bench.app.handler("write", middleware=[without_overlapping("row 1", shared=True)])
    def write() -> None:
        started.set()
        gate.wait(10)

    @bench.app.handler("erase", middleware=[without_overlapping("row 1", shared=True)])
    def erase() -> None:
        bench.ran.append("erase")

    bench.push("write")
    bench.start(concurrency=2)
    started.wait(10)
    bench.push("erase")
    bench.until(lambda: bench.counts()[1] == 1)
    assert bench.ran == []
    gate.set()


def test_keys_that_join_to_the_same_text_do_not_collide(bench: Bench) -> None:
    gate = threading.Barrier(2, timeout=10)
    for name, key in (("a", "b:c"), ("a:b", "c")):
        bench.app.handler(name, middleware=[without_overlapping(key, release_after=30)])(lambda: gate.wait() and None)
        bench.push(name)
    bench.work(concurrency=2)
    assert not gate.broken


def test_what_is_refused_goes_back_for_seconds_and_its_attempt_is_not_spent(bench: Bench) -> None:
    lock = lock_of(bench)
    assert lock.take()
    seen: list[int] = []

    @bench.app.handler("write", tries=1, middleware=[without_overlapping()])
    def write(job: Job) -> None:
        seen.append(job.attempts)

    bench.push("write")
    for _ in range(3):
        bench.work()
        assert bench.counts() == (0, 1, 0, 0)
        bench.advance(4.9)
        bench.work()
        assert bench.counts() == (0, 1, 0, 0), "it came back sooner than after five seconds"
        bench.advance(0.7)
    lock.free()
    bench.work()
    assert seen == [1]


def test_with_drop_what_is_refused_is_done(bench: Bench) -> None:
    assert lock_of(bench).take()
    bench.app.handler("write", middleware=[without_overlapping(drop=True)])(lambda: bench.ran.append("x"))
    bench.push("write")
    bench.work()
    assert bench.ran == []
    assert bench.counts() == (0, 0, 0, 0)


@pytest.mark.parametrize("end", ["return", "raise", "delete", "release", "fail"])
def test_the_lock_is_free_however_the_handler_ends(bench: Bench, end: str) -> None:
    @bench.app.handler("write", middleware=[without_overlapping()])
    def write(job: Job) -> None:
        assert not lock_of(bench).take()
        if end == "raise":
            message = "no"
            raise ValueError(message)
        if end != "return":
            getattr(job, end)()

    bench.push("write")
    bench.work(max_jobs=1)
    assert lock_of(bench).take()


def test_a_timeout_frees_the_lock(bench: Bench) -> None:
    @bench.app.handler("write", timeout=0.1, fail_on_timeout=True, middleware=[without_overlapping()])
    def write() -> None:
        until = time.monotonic() + 10
        while time.monotonic() < until:
            time.sleep(0.01)  # the handler's work, which is interrupted

    bench.push("write")
    bench.work()
    assert bench.counts() == (0, 0, 0, 1)
    assert lock_of(bench).take()


def test_a_coroutine_handler_holds_the_lock_while_it_runs(bench: Bench) -> None:
    held: list[bool] = []

    @bench.app.handler("write", middleware=[without_overlapping()])
    async def write() -> None:
        held.append(not lock_of(bench).take())

    bench.push("write")
    bench.work()
    assert held == [True]
    assert lock_of(bench).take()


def test_the_lock_is_renewed_while_the_handler_outlasts_its_first_lease(bench: Bench) -> None:
    tries: list[bool] = []

    @bench.app.handler("write", middleware=[without_overlapping()])
    def write() -> None:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            tries.append(lock_of(bench, ttl=0.001).take())
            time.sleep(0.02)  # the handler's work, three leases long

    bench.push("write")
    bench.work(lease_s=0.5)
    assert len(tries) > 10
    assert not any(tries)
    assert lock_of(bench).take()


def test_the_lock_of_a_delivery_whose_lease_nobody_renews_ends_with_it(bench: Bench) -> None:
    held = without_overlapping()
    bench.push("write")
    (job,) = bench.queue.pop(lease=0.6)
    deadline_us = round(job.record().reserved_until.timestamp() * 1_000_000)  # type: ignore[union-attr]

    def step() -> None:
        bench.until(lambda: lock_of(bench).take())
        bench.ran.append("taken by another")
        assert bench.driver.now() <= deadline_us + 50_000

    held(job, step)
    assert bench.ran == ["taken by another"]
    assert not lock_of(bench).take(), "it freed what another holds"


def test_a_redelivery_enters_the_lock_that_its_dead_predecessor_holds(bench: Bench) -> None:
    job = bench.push("write")
    parts = ("overlap", "acme", "write", "")
    key = "".join(f"{len(part)}:{part}" for part in parts)
    assert Lock(bench.driver, key, 60, owner=job.id).take()
    bench.app.handler("write", middleware=[without_overlapping()])(lambda: bench.ran.append("x"))
    bench.push("write")
    bench.start(concurrency=1)
    bench.until(lambda: bench.ran == ["x", "x"])


def test_a_late_end_does_not_free_the_lock_of_the_next_delivery(bench: Bench) -> None:
    held = without_overlapping()
    bench.push("write")
    (first,) = bench.queue.pop(lease=0.3)
    entered, over = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def overtaken() -> None:
        bench.until(lambda: bench.queue.counts().pending == 1)
        (second,) = bench.queue.pop(lease=60)
        assert second.id == first.id

        def step() -> None:
            entered.set()
            over.wait(10)

        threads.append(threading.Thread(target=held, args=(second, step)))
        threads[0].start()
        assert entered.wait(10)

    held(first, overtaken)
    assert not lock_of(bench).take()
    over.set()
    threads[0].join(10)
    assert lock_of(bench).take()


def test_a_job_does_not_run_while_the_store_cannot_say_whether_the_lock_is_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> bool:
        raise StoreUnavailableError

    bench.app.handler("write", middleware=[without_overlapping()])(lambda: bench.ran.append("x"))
    bench.push("write")
    with monkeypatch.context() as patched:
        patched.setattr(bench.driver, "lock", away)
        bench.work()
    assert bench.ran == []
    assert bench.counts() == (0, 1, 0, 0)


def test_one_thread_renews_all_locks_of_the_process(bench: Bench) -> None:
    gate = threading.Barrier(9, timeout=20)

    @bench.app.handler("write", middleware=[without_overlapping(lambda job: job.id)])
    def write() -> None:
        gate.wait()
        gate.wait()

    for _ in range(8):
        bench.push("write")
    bench.start(concurrency=8)
    gate.wait()
    renewing = [thread for thread in threading.enumerate() if thread.name == "hesape-locks"]
    gate.wait()
    assert len(renewing) == 1


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"release_after": 0}, "without_overlapping: release_after 0: expected more than 0"),
        ({"release_after": "soon"}, "release_after 'soon': expected seconds"),
        ({"key": 7}, "without_overlapping: key 7: expected text"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], what: str) -> None:
    with pytest.raises(InvalidError, match=what):
        without_overlapping(**options)  # type: ignore[arg-type]


def test_a_key_that_is_no_text_fails_the_job_with_a_reason(bench: Bench) -> None:
    bench.push("write")
    (job,) = bench.queue.pop()
    with pytest.raises(ArgumentInvalidError, match=f"key 7 for job {job.id}: expected text, found int"):
        without_overlapping(lambda _: 7)(job, lambda: None)  # type: ignore[arg-type,return-value]


def test_a_fake_job_has_no_store_for_the_lock() -> None:
    with pytest.raises(UnsupportedError, match=r"hesape\.testing\.FakeQueue"):
        without_overlapping()(FakeJob("write", "acme"), lambda: None)
