"""`fail_on_exception`: park at once on errors that no retry can mend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from hesape.errors import ArgumentInvalidError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job


@attrs.frozen(kw_only=True)
class FailOnException:
    """Made by `fail_on_exception`."""

    classes: tuple[type[Exception], ...] = ()
    predicate: Callable[[Exception], object] | None = None

    def __call__(self, job: Job, step: Callable[[], object]) -> object:
        """Run the job; park it on a matching error, and let that error on its way."""
        try:
            return step()
        except Exception as error:
            if not job.is_settled and self._matches(error):
                job.exceptions += 1
                job.fail(error)
            raise

    def _matches(self, error: Exception) -> bool:
        return isinstance(error, self.classes) or (self.predicate is not None and bool(self.predicate(error)))


def fail_on_exception(*errors: type[Exception] | Callable[[Exception], object]) -> FailOnException:
    """Park the job on errors of these classes, or on those for which the function returns a truth.

    The error itself goes on, to middlewares outside this one and to the worker's reports. Others are retried as ever.
    """
    classes = tuple(error for error in errors if isinstance(error, type) and issubclass(error, Exception))
    others = [error for error in errors if error not in classes]
    if not errors or len(others) > 1 or any(isinstance(error, type) or not callable(error) for error in others):
        message = f"fail_on_exception{errors!r}: expected classes of exceptions, or a function of the exception"
        raise ArgumentInvalidError(message)
    return FailOnException(classes=classes, predicate=others[0] if others else None)
