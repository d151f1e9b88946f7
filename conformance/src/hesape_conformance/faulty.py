"""A driver whose store seems to fail now and then, and a core that gives up sooner."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from hesape import retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape.driver import Driver
    from hesape.errors import StoreError


class Faulty:
    """For the length of a block, let a method of this driver object raise before or after it does its work."""

    def __init__(
        self, driver: Driver, method: str, error: type[StoreError], *, after: bool = False, times: int = 1
    ) -> None:
        """Raise `error` at the first so many calls."""
        self._driver = driver
        self._method = method
        self._error = error
        self._after = after
        self._left = times
        self.calls = 0

    def __enter__(self) -> Self:
        """Begin."""
        real = getattr(self._driver, self._method)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            fails, self._left = self._left > 0, self._left - 1
            if fails and not self._after:
                raise self._error
            found = real(*args, **kwargs)
            if fails:
                raise self._error
            return found

        object.__setattr__(self._driver, self._method, call)
        return self

    def __exit__(self, *_: object) -> None:
        """Let it be well again."""
        object.__delattr__(self._driver, self._method)


@contextmanager
def impatient(seconds: float) -> Iterator[None]:
    """Let core give up after so long, for the length of a block: its own patience costs a suite its time."""
    before = retry.PATIENCE_S
    retry.PATIENCE_S = seconds  # type: ignore[misc]
    try:
        yield
    finally:
        retry.PATIENCE_S = before  # type: ignore[misc]
