from __future__ import annotations

import random
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from hesape import retry
from hesape.errors import JobTimeoutError
from hesape.interrupts import Interruptible, uninterrupted

SEED = 20261201


class Thread:
    """A thread with an `Interruptible` of its own that runs what it is given, again and again."""

    def __init__(self, call: Callable[[], object], rounds: int = 1) -> None:
        self.errors: list[BaseException | None] = []
        self.leaked: list[BaseException] = []
        self.ready = threading.Event()
        self.begun = threading.Event()
        self._call = call
        self._rounds = rounds
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()
        assert self.ready.wait(10)

    def _work(self) -> None:
        self.interruptible = Interruptible()
        self.ready.set()
        try:
            for _ in range(self._rounds):
                self.begun.set()
                self.errors.append(self.interruptible.run(self._call))
                sum(range(200))
        except BaseException as error:  # noqa: BLE001
            self.leaked.append(error)

    def join(self) -> None:
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def interrupt(thread: Thread) -> None:
    deadline = time.monotonic() + 10
    while not thread.interruptible.interrupt(1):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_busy_thread_is_interrupted() -> None:
    thread = Thread(lambda: spin(30))
    interrupt(thread)
    thread.join()
    assert isinstance(thread.errors[0], JobTimeoutError)


class Calls:
    """Calls something from where Python ignores what it raises."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def in_a_callback(call: Callable[[], object]) -> None:
    target = Calls(lambda: None)
    reference = weakref.ref(target, lambda _: call())
    del target
    assert reference() is None


@pytest.mark.parametrize("call_ignored", [Calls, in_a_callback], ids=["__del__", "a weakref's callback"])
def test_an_interruption_that_python_ignored_is_sent_again(
    call_ignored: Callable[[Callable[[], object]], object],
) -> None:
    print(f"seed {SEED}")  # noqa: T201 - a failure is repeated with it
    chance = random.Random(SEED)
    ignored: list[type[BaseException]] = []
    heard: list[object] = []
    inside = threading.Event()

    def long() -> None:
        try:
            inside.set()
            spin(0.05)
        except BaseException as error:
            ignored.append(type(error))
            raise

    def handler() -> None:
        while True:
            call_ignored(long)
            spin(0.001)

    before, sys.unraisablehook = sys.unraisablehook, heard.append
    try:
        thread = Thread(handler)
        assert inside.wait(10)
        deadline = time.monotonic() + 20
        while thread.thread.is_alive() and time.monotonic() < deadline:
            thread.interruptible.interrupt(1)
            time.sleep(chance.uniform(0, 0.01))
        thread.join()
    finally:
        sys.unraisablehook = before
    assert isinstance(thread.errors[0], JobTimeoutError)
    assert ignored
    assert heard == []


def test_what_else_python_ignores_reaches_the_hook_that_was_there() -> None:
    heard: list[type[BaseException]] = []

    def fails() -> None:
        raise ValueError

    before, sys.unraisablehook = sys.unraisablehook, lambda ignored: heard.append(ignored.exc_type)
    try:
        thread = Thread(lambda: Calls(fails))
        thread.join()
        Calls(fails)
    finally:
        sys.unraisablehook = before
    assert thread.errors == [None]
    assert heard == [ValueError, ValueError]


def test_a_run_that_isnt_interrupted_returns_what_it_raised() -> None:
    def raises() -> None:
        raise SystemExit(3)

    thread = Thread(raises)
    thread.join()
    assert isinstance(thread.errors[0], SystemExit)


def test_a_thread_that_runs_nothing_isnt_interrupted() -> None:
    thread = Thread(lambda: None)
    thread.join()
    assert not thread.interruptible.interrupt(thread.interruptible.runs)


def test_an_interruption_that_comes_too_late_doesnt_hit_the_next_run() -> None:
    thread = Thread(lambda: spin(0.2), 2)
    assert thread.begun.wait(10)
    while thread.interruptible.runs < 2:
        time.sleep(0.001)
    assert thread.interruptible.interrupt(1)
    thread.join()
    assert thread.errors == [None, None]


def test_a_call_to_a_store_is_left_alone_and_the_handler_interrupted_after_it() -> None:
    finished: list[bool] = []

    def exchange(*_: bool) -> None:
        spin(0.2)
        finished.append(True)

    def handler() -> None:
        retry.insist(exchange)
        spin(30)

    thread = Thread(handler)
    interrupt(thread)
    thread.join()
    assert finished == [True]
    assert isinstance(thread.errors[0], JobTimeoutError)


def test_a_thread_that_calls_a_store_all_the_time_is_interrupted_between_two_calls() -> None:
    def handler() -> None:
        while True:
            retry.insist(lambda _: time.sleep(0.02))

    thread = Thread(handler)
    assert thread.begun.wait(10)
    interrupt(thread)
    thread.join()
    assert isinstance(thread.errors[0], JobTimeoutError)


def test_no_interruption_reaches_a_store_call_or_what_comes_after_the_run(eager_threads: None) -> None:
    print(f"seed {SEED}")  # noqa: T201 - a failure is repeated with it
    chance = random.Random(SEED)
    cut: list[BaseException] = []
    rounds = 3_000

    def exchange(*_: bool) -> None:
        try:
            sum(range(50))
            sum(range(50))
        except BaseException as error:
            cut.append(error)
            raise

    def handler() -> None:
        for _ in range(60):
            uninterrupted(exchange, repeat=False)
            sum(range(20))

    thread = Thread(handler, rounds)
    while thread.thread.is_alive():
        thread.interruptible.interrupt(thread.interruptible.runs)
        time.sleep(chance.uniform(0, 0.0002))
    thread.join()
    assert thread.leaked == []
    assert cut == []
    interrupted = sum(isinstance(error, JobTimeoutError) for error in thread.errors)
    assert len(thread.errors) == rounds
    assert interrupted > 20, f"only {interrupted} of {rounds} runs were interrupted"


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_outside_a_workers_thread_a_store_call_is_a_plain_call(raised: type[BaseException]) -> None:
    def call(*_: bool) -> None:
        raise raised

    with pytest.raises(raised):
        uninterrupted(call, repeat=False)
