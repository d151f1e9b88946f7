"""One store behind a failover connection: whether it is asked, and what is owed to it.

A store that can't be reached is left out until a thread of its own has reached it again, so that no call pays for
finding out, and has paid what is owed: deletions and hand-backs that it missed. One that only refuses pushes is left
out of pushes for a while, after which one of them tries.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from hesape.errors import HesapeError, OutcomeUnknownError, StoreBusyError, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.driver import Driver

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 2.0
"""How often a store that can't be reached is asked for a sign of life, at least."""
REFUSED_S: Final = 2.0
"""How long a store that refused a push isn't offered another."""
TRIES: Final = 3
"""Calls in a row that meet a conflict or get no answer, before a store counts as one that can't be reached."""


class Member:
    """A store with a circuit breaker. Threads share it; nothing in it blocks them."""

    def __init__(self, name: str, driver: Driver) -> None:
        """Trust it."""
        self.name = name
        self.driver = driver
        self.trouble: StoreError | None = None
        """The last error, until it takes a push again."""
        self.owed_tokens: set[bytes] = set()
        """Claims that are given back as soon as it can be reached."""
        self._told = threading.Lock()
        """Locked while a failover was told of: which thread locks it, tells."""
        self._open = False
        self._refuses_until = 0.0
        self._debts: deque[Callable[[], object]] = deque()
        self._pid = os.getpid()
        self._probing = threading.Lock()
        self._over = threading.Event()

    # Whether it is asked.

    @property
    def reachable(self) -> bool:
        """Whether calls go to it."""
        if self._open:
            self._probe()
        return not self._open

    def takes_pushes(self) -> bool:
        """Whether a push goes to it. After a refusal's time is over, the one push that asks first."""
        if not self.reachable:
            return False
        now = monotonic()
        if now < self._refuses_until:
            return False
        if self._refuses_until:
            self._refuses_until = now + REFUSED_S
        return True

    def unreachable(self, error: StoreError) -> None:
        """It can't be reached: leave it out until it can."""
        self.trouble = error
        if not self._open:
            self._open = True
            logger.warning("connection %s can't be reached: %s: %s", self.name, type(error).__name__, error)
        self._probe()

    def refused(self, error: StoreError) -> None:
        """It refused a push: offer it none for a while."""
        self.trouble = error
        self._refuses_until = monotonic() + REFUSED_S

    def first_to_tell(self) -> bool:
        """Whether nobody has told of this failover yet; then the caller does."""
        return self._told.acquire(blocking=False)

    def took_a_push(self) -> None:
        """It took one: the failover, if there was one, is over."""
        if self.trouble is None:
            return
        self.trouble, self._refuses_until = None, 0.0
        if self._told.locked():
            logger.warning("connection %s takes pushes again", self.name)
            try:
                self._told.release()
            except RuntimeError:  # another push was quicker
                return

    # Calls.

    def ask(self, call: Callable[[bool], T], *, tries: int = TRIES) -> T:
        """Make a call that is harmless twice, which learns whether an earlier send may have been executed.

        A conflict and a lost answer are tried again at once. What remains is raised, and the store counts as one that
        can't be reached; an unknown outcome stays unknown.
        """
        failure: StoreError
        unknown: OutcomeUnknownError | None = None
        while True:
            tries -= 1
            try:
                return call(unknown is not None)
            except OutcomeUnknownError as error:
                failure = unknown = error
            except StoreBusyError as error:
                failure = error
            except StoreUnavailableError as error:
                tries, failure = 0, error  # it isn't asked again
            if tries <= 0:
                self.unreachable(failure)
                raise unknown or failure

    # What is owed.

    def owe(self, debt: Callable[[], object]) -> None:
        """Make this call once the store can be reached again."""
        self._debts.append(debt)
        self._open = True
        self._probe()

    def owe_claim(self, token: bytes, debt: Callable[[], object]) -> None:
        """Give back a claim whose answer was lost; it isn't repeated meanwhile."""
        self.owed_tokens.add(token)

        def pay() -> None:
            debt()
            self.owed_tokens.discard(token)

        self.owe(pay)

    def _pay(self) -> None:
        while self._debts:
            self._debts[0]()
            self._debts.popleft()

    # Finding out.

    def _probe(self) -> None:
        """Have a thread wait for its return, unless one does."""
        if self._pid != os.getpid():
            self._pid, self._probing, self._over = os.getpid(), threading.Lock(), threading.Event()
            self._debts.clear()  # they are the parent's
        if self._probing.acquire(blocking=False):
            self._over.clear()
            threading.Thread(target=self._wait_for_return, name=f"hesape-probe-{self.name}", daemon=True).start()

    def _wait_for_return(self) -> None:
        try:
            self._open = self._away()
            while self._debts and not self._over.is_set():  # somebody came to owe in the last moment
                self._open = self._away()
        finally:
            self._probing.release()

    def _away(self) -> bool:
        """Wait until it answers; then it isn't away."""
        pause_s = FIRST_PAUSE_S
        while not self._over.wait(pause_s) and not self._answers():
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return False

    def _answers(self) -> bool:
        try:
            self.driver.ping()
            self._pay()
        except HesapeError:
            return False
        except Exception:
            logger.exception("connection %s: the driver failed", self.name)
            return False
        logger.warning("connection %s can be reached again", self.name)
        return True

    def close(self) -> None:
        """Wait for nothing any more; a later call asks it as if nothing had been."""
        self._over.set()
