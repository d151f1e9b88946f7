"""Finds a short story: leaves out steps, then parts of what they were told, as long as it still ends badly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hesape_conformance.machine.steps import Choice

SHRINK_S = 20.0
"""How long a shorter story is looked for."""


def shorten(choices: Sequence[Choice], fails: Callable[[Sequence[Choice]], bool]) -> None:
    """Try ever shorter choices, for a while; `fails` keeps what it was tried with when that still ends badly."""
    until = time.monotonic() + SHRINK_S
    size = len(choices)
    while size and time.monotonic() < until:
        before = choices
        choices = _without_runs(choices, size, fails, until)
        if size > 1 or len(choices) == len(before):
            size //= 2
    for index in range(len(choices)):
        choices = _simpler(choices, index, fails, until)


def _without_runs(
    choices: Sequence[Choice], size: int, fails: Callable[[Sequence[Choice]], bool], until: float
) -> Sequence[Choice]:
    end = len(choices)
    while end > 0 and time.monotonic() < until:
        shorter = [*choices[: max(end - size, 0)], *choices[end:]]
        if fails(shorter):
            choices = shorter
        end -= size
    return choices


def _simpler(
    choices: Sequence[Choice], index: int, fails: Callable[[Sequence[Choice]], bool], until: float
) -> Sequence[Choice]:
    again = True
    while again and time.monotonic() < until:
        again = False
        for choice in _variants(choices[index]):
            simpler = [*choices[:index], choice, *choices[index + 1 :]]
            if fails(simpler):
                choices, again = simpler, True
                break
    return choices


def _variants(choice: Choice) -> Iterator[Choice]:
    """The same step with one argument simpler: a list without one of its items, a number that is 0, nothing known."""
    for name, value in choice.arguments.items():
        simpler: list[Any] = []
        if isinstance(value, list) and len(value) > 1:
            simpler = [value[:place] + value[place + 1 :] for place in range(len(value))]
        elif isinstance(value, tuple):
            simpler = [None]
        elif type(value) is int and name == "pick" and value:
            simpler = [0]
        for each in simpler:
            yield choice.changed(**{name: each})
