"""What an example did, told in words; what all of them produced; and the shortest story that ended badly."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hesape_conformance.machine.steps import Choice

PRODUCED: Final = (
    "equal priorities",
    "lost leases",
    "tampering",
    "repeated ids",
    "pauses",
    "leases run out",
    "other contents",
    "foreign tokens",
    "forged pushes",
)
"""What the steps of a run must really have produced; each counts only where it made a difference to an answer."""


class Story:
    """The steps of one example."""

    def __init__(self) -> None:
        """Begin."""
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        """Tell a step, before it is made."""
        self.lines.append(line)

    def add(self, words: str) -> None:
        """Tell what came of the step."""
        self.lines[-1] += f": {words}"

    def ending(self, problem: BaseException) -> str:
        """The whole story, numbered, and how it ended."""
        steps = "\n".join(f"  {number}. {line}" for number, line in enumerate(self.lines, 1))
        what = str(problem) or type(problem).__name__
        kind = "" if isinstance(problem, AssertionError) else f"{type(problem).__name__}: "
        return f"{what_happened(self.lines)}\n{steps}\n  {kind}{what}"


def what_happened(lines: Sequence[str]) -> str:
    """The heading of a story."""
    return "it goes wrong in one step:" if len(lines) == 1 else f"it goes wrong in {len(lines)} steps:"


class Findings:
    """What the examples of a run came to."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.produced: Counter[str] = Counter()
        self.steps = 0
        self.examples = 0
        self.choices: Sequence[Choice] = ()
        """The steps of the first example that ended badly."""
        self._shortest: tuple[int, str, BaseException] | None = None

    def failed(self, story: Story, problem: BaseException) -> None:
        """Keep a story that ended badly, if none is shorter."""
        length = sum(map(len, story.lines))
        if self._shortest is None or length <= self._shortest[0]:
            self._shortest = length, story.ending(problem), problem

    @property
    def bad(self) -> bool:
        """Whether a story ended badly."""
        return self._shortest is not None

    def tell(self) -> None:
        """Raise `AssertionError` with the shortest story that ended badly, if one did."""
        if self._shortest is not None:
            _, text, problem = self._shortest
            raise AssertionError(text) from problem

    def conclude(self) -> str:
        """What was produced, in a line; `AssertionError` when something never came up."""
        missing = [name for name in PRODUCED if not self.produced[name]]
        counted = ", ".join(f"{name} {self.produced[name]}" for name in PRODUCED)
        line = f"{self.examples} examples, {self.steps} steps; {counted}"
        assert not missing, f"the steps never produced {', '.join(missing)}, so nothing is proved about them ({line})"
        return line
