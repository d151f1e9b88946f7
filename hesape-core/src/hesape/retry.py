"""Who repeats what: drivers make one attempt and say what they know, core decides about the next (S5, I2, E1).

StoreUnavailableError   surely nothing was written: the same call again
StoreBusyError          rolled back because of a conflict: the same call again, soon
StoreRefusedError       surely nothing was written, and the same call wouldn't help soon
OutcomeUnknownError     it may have been written: a call that is harmless twice is made again, told so
anything else           a fault of the driver, raised as it is; it may have been written
"""

from __future__ import annotations

import random
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from hesape.errors import (
    OutcomeUnknownError,
    SchemaError,
    StoreBusyError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from hesape.interrupts import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE_S: Final = 2.0
"""How long a call that nobody else bounds is repeated."""
_NOTHING_WRITTEN: Final = (StoreUnavailableError, StoreRefusedError, SchemaError)
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0


def insist(call: Callable[[bool], T], *, until: float | None = None, once: bool = False) -> T:
    """Make a call that is harmless twice, again and again until it has an answer or the monotonic time `until` is past.

    `call(repeat)` is told whether an earlier send may have been executed. When time is over the last error is raised;
    an unknown outcome stays unknown, even when the store can't be reached or refuses the repeat. With `once` the call
    isn't harmless twice, and an unknown outcome is raised as it is.
    """
    deadline = monotonic() + PATIENCE_S if until is None else until
    failure: StoreError
    unknown: OutcomeUnknownError | None = None
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return uninterrupted(call, unknown is not None)
        except OutcomeUnknownError as error:
            if once:
                raise
            unknown, failure = error, error
        except StoreUnavailableError as error:
            failure = error
        except _NOTHING_WRITTEN as error:
            if unknown is None:
                raise
            raise unknown from error
        wait = (
            0.0 if pause == _FIRST_PAUSE_S and isinstance(failure, StoreBusyError) else pause * random.uniform(0.5, 1)
        )
        if monotonic() + wait >= deadline:
            raise unknown or failure
        sleep(wait)
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def may_be_written(error: BaseException) -> bool:
    """Whether a call that raised this may have been executed: all but what surely wasn't."""
    return not isinstance(error, _NOTHING_WRITTEN)
