"""What checks expect of calls: a refusal of one exact class, or something that comes true within a while."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

PATIENCE_S = 10.0


class Caught(Generic[E]):
    """The error that a block raised, once it did."""

    error: E


@contextmanager
def raises(kind: type[E], *texts: object) -> Iterator[Caught[E]]:
    """Expect a block to raise exactly this class, no subclass, with each text in its message."""
    caught: Caught[E] = Caught()
    try:
        yield caught
    except kind as error:
        assert type(error) is kind, f"expected {kind.__name__}, found {type(error).__name__}: {error}"
        for text in texts:
            assert str(text) in str(error), f"expected {text!r} in the message: {error}"
        caught.error = error
    except Exception as error:
        message = f"expected {kind.__name__}, found {type(error).__name__}: {error}"
        raise AssertionError(message) from error
    else:
        message = f"expected {kind.__name__}, nothing was raised"
        raise AssertionError(message)


def eventually(call: Callable[[], T], what: str, *, within_s: float | None = None, every_s: float = 0.01) -> T:
    """Repeat a call until it answers something true, and return that; fails when it doesn't in time."""
    within_s = PATIENCE_S if within_s is None else within_s
    deadline = time.monotonic() + within_s
    while True:
        found = call()
        if found:
            return found
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s (last answer {found!r})"
        time.sleep(every_s)
