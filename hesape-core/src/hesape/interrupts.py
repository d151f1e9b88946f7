"""Interrupting a handler's thread at its timeout, and nothing but the handler: no bookkeeping, and no call to a store.

A thread is interrupted by an exception that Python raises in it at its next step. Raised inside the exchange with a
store it would leave half a reply on a connection; raised in the worker's own lines it would cost a settlement. So a
thread says when it is open to it. Who interrupts first says that he is about to, then looks whether the thread is open;
who closes first closes, then looks whether somebody is about to. One of the two always sees the other, without a lock.

Where it arrives in a `__del__` or a weak reference's callback, Python ignores it, and says so to `sys.unraisablehook`:
there it is sent on its way once more.
"""

from __future__ import annotations

import sys
import threading
from time import sleep
from typing import TYPE_CHECKING, TypeVar

from hesape.errors import JobTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_here = threading.local()


class Interruptible:
    """One thread that runs handlers. All but `interrupt` is called by the thread itself."""

    __slots__ = ("_held", "_owed", "_sending", "id", "open", "runs", "sent")

    def __init__(self) -> None:
        """Belong to the thread that calls this."""
        self.id = threading.get_ident()
        self.open = False
        self._held = 0
        self._sending = False
        self.sent = False
        self._owed = 0
        """The run that is interrupted as soon as its call to a store returns."""
        self.runs = 0
        """How many runs began: the number of the one that `interrupt` means."""
        _here.thread = self
        if not isinstance(sys.unraisablehook, _Ignored):
            sys.unraisablehook = _Ignored(sys.unraisablehook)

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """Run `call`, open to interruption, and return what it raised, whatever that is.

        After it nothing is raised in this thread from outside any more. Every line counts: an interruption may arrive
        at any call, and at the start of any function, while the thread is open.
        """
        error: BaseException | None = None
        self.sent = False
        self.runs += 1
        try:
            try:
                self.open = True
                call()
            except BaseException as caught:  # noqa: BLE001 - SystemExit and its like are outcomes of a job too
                error = caught
            self.open = False
        except JobTimeoutError as late:  # it came after the end of the call, whose outcome stands
            self.open = False
            error = error or late.__context__
        if self._sending or self.sent:
            try:  # noqa: SIM105 - one call less at which it could arrive outside
                self._calm()
            except JobTimeoutError:
                pass
        return error

    def _calm(self) -> None:
        while self._sending:
            sleep(0)
        _raise_in(self.id, None)

    def hold(self, call: Callable[[bool], T], repeat: bool) -> T:  # noqa: FBT001 - the shape of retry.insist
        """Make a call to a store that isn't interrupted: what is on its way comes before it, the rest after it."""
        self._held += 1
        try:
            while self._sending:
                sleep(0)
            return call(repeat)
        finally:
            self._held -= 1
            if self._sending or self._owed:
                self._pay()

    def _pay(self) -> None:
        while self._sending:
            sleep(0)
        if self._owed == self.runs and self.open and not self._held and not self.sent:
            self.sent = True
            raise JobTimeoutError

    def interrupt(self, run: int) -> bool:
        """Raise `JobTimeoutError` in the thread, once a run, from another one; whether it is done or has no object.

        A thread inside a call to a store raises it itself, after the call. False: the run is about to begin or to end.
        """
        self._sending = True
        try:
            if self.runs != run or self.sent:
                return True
            if self._held:
                self._owed = run
                return True
            if self.open:
                self.sent = True
                _raise_in(self.id, JobTimeoutError)
            return self.sent
        finally:
            self._sending = False


class _Ignored:
    """The process's `sys.unraisablehook`: called in the thread in which Python ignored an exception."""

    def __init__(self, before: Callable[[sys.UnraisableHookArgs], object]) -> None:
        """Leave what isn't an interruption to `before`."""
        self._before = before

    def __call__(self, ignored: sys.UnraisableHookArgs) -> None:
        thread: Interruptible | None = getattr(_here, "thread", None)
        if thread is None or not thread.sent or not issubclass(ignored.exc_type, JobTimeoutError):
            self._before(ignored)
        elif thread.open:
            import ctypes

            send = ctypes.pythonapi.PyThreadState_SetAsyncExc
            sent = map(send, (ctypes.c_ulong(thread.id),), (ctypes.py_object(JobTimeoutError),))
            (_,) = sent  # after a call it would arrive at once, in here; this sends it without one


def uninterrupted(call: Callable[[bool], T], repeat: bool) -> T:  # noqa: FBT001
    """Make a call to a store, out of reach of a handler's timeout."""
    thread: Interruptible | None = getattr(_here, "thread", None)
    return call(repeat) if thread is None else thread.hold(call, repeat)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Have Python raise `error` in a thread; `None` takes back what hasn't arrived."""
    import ctypes

    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)
