"""`skip.when` and `skip.unless`: drop a job without running it, as done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import attrs

from hesape.errors import ArgumentInvalidError

if TYPE_CHECKING:
    from hesape.jobs import Job

Condition: TypeAlias = bool | Callable[["Job"], object]
"""A truth, or a function of the job that finds it out when the job's turn has come."""


@attrs.frozen(kw_only=True)
class Skip:
    """Made by `when` and `unless`."""

    condition: Condition
    wanted: bool

    def __call__(self, job: Job, step: Callable[[], object]) -> object:
        """Run the job, or leave it to be deleted."""
        holds = self.condition(job) if callable(self.condition) else self.condition
        return None if bool(holds) is self.wanted else step()


def when(condition: Condition) -> Skip:
    """Drop the job when `condition`, a truth or a function of the job, holds."""
    return Skip(condition=_checked("when", condition), wanted=True)


def unless(condition: Condition) -> Skip:
    """Drop the job unless `condition`, a truth or a function of the job, holds."""
    return Skip(condition=_checked("unless", condition), wanted=False)


def _checked(what: str, condition: Condition) -> Condition:
    if not isinstance(condition, bool) and not callable(condition):
        message = f"skip.{what}: {condition!r}: expected True, False or a function of the job"
        raise ArgumentInvalidError(message)
    return condition
