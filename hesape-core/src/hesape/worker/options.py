"""What a worker is told, and the order in which it asks its queues for jobs (O3)."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from hesape import names
from hesape.errors import ArgumentInvalidError
from hesape.jobs import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_WEIGHT: Final = 1_000
_MOST_SLOTS: Final = 1_000


class Settle(StrEnum):
    """How the jobs that a worker has done leave the store."""

    BATCH = "batch"
    """Together with those of the next milliseconds: few round trips, and a killed worker's last few run again."""
    EACH = "each"
    """One by one, before the slot takes another: a round trip a job."""


def _settle(value: str) -> Settle:
    if value not in tuple(Settle):
        message = f"settle {value!r}: expected {' or '.join(Settle)}"
        raise ArgumentInvalidError(message)
    return Settle(value)


def _least(bound: float) -> Any:
    def check(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
        if value < bound:
            message = f"{attribute.name} {value!r}: expected at least {bound}"
            raise ArgumentInvalidError(message)

    return check


def _above_zero(instance: object, attribute: attrs.Attribute[Any], value: float) -> None:
    if value <= 0:
        message = f"{attribute.name} {value!r}: expected more than 0"
        raise ArgumentInvalidError(message)


def _prefetch(instance: object, attribute: attrs.Attribute[Any], value: int | None) -> None:
    if value is not None and value < 0:
        message = f"prefetch {value!r}: expected 0 or more jobs, or nothing to let the worker decide"
        raise ArgumentInvalidError(message)


def _most(bound: int) -> Any:
    def check(instance: object, attribute: attrs.Attribute[int], value: int) -> None:
        if value > bound:
            message = f"{attribute.name} {value!r}: expected at most {bound}"
            raise ArgumentInvalidError(message)

    return check


def _whole(values: Sequence[int]) -> tuple[int, ...]:
    return tuple(values)


def _queue_names(queues: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names.check_queue(queue or DEFAULT_QUEUE) for queue in queues)) or (DEFAULT_QUEUE,)


@attrs.frozen(kw_only=True)
class WorkerOptions:
    """The options of `hesape work`. Durations are seconds."""

    queues: tuple[str, ...] = attrs.field(default=(DEFAULT_QUEUE,), converter=_queue_names)
    """Drained strictly in this order, unless there are weights."""
    weights: tuple[int, ...] = attrs.field(default=(), converter=_whole)
    """One a queue: how often each comes first. Empty: strict order."""
    concurrency: int = attrs.field(default=4, validator=[_least(1), _most(_MOST_SLOTS)])
    """Handlers that run at the same time in one process."""
    processes: int = attrs.field(default=1, validator=_least(1))
    once: bool = False
    """Take one job, or none when none is due, and stop."""
    stop_when_empty: bool = False
    """Stop when nothing is due and nothing is reserved."""
    max_jobs: int = attrs.field(default=0, validator=_least(0))
    """Stop after this many jobs; 0: never."""
    max_time_s: float = attrs.field(default=0.0, validator=_least(0))
    """Stop after this long; 0: never."""
    memory_mib: int = attrs.field(default=0, validator=_least(0))
    """Stop with exit code 12 above this much resident memory; 0: never."""
    timeout_s: float = 300.0
    """How long a handler may run, unless it or its job says so; 0 or less: no limit."""
    tries: int = 5
    """Deliveries before a job is parked, unless it or its handler says so; 0 or less: no limit."""
    lease_s: float = attrs.field(default=60.0, validator=_least(0.5))
    """For how long the store reserves a job; renewed while it runs, about six times in it."""
    sleep_s: float = attrs.field(default=1.0, validator=_above_zero)
    """How long an idle worker waits before it asks again, when nothing wakes it."""
    rest_s: float = attrs.field(default=0.0, validator=_least(0))
    """How long a slot rests after each job."""
    grace_s: float = attrs.field(default=25.0, validator=_least(0))
    """How long running jobs may go on after the worker was asked to stop."""
    name: str = ""
    """What the worker's ids begin with; empty: the machine's name."""
    prefetch: int | None = attrs.field(default=None, validator=_prefetch)
    """Jobs held ready beside the running ones; `None`: as many as their duration makes worthwhile."""
    settle: Settle = attrs.field(default=Settle.BATCH, converter=_settle)

    def __attrs_post_init__(self) -> None:
        """Refuse weights that don't fit the queues."""
        if self.weights and len(self.weights) != len(self.queues):
            message = f"{len(self.weights)} weights for {len(self.queues)} queues: expected one a queue"
            raise ArgumentInvalidError(message)

    @property
    def last_job(self) -> int:
        """How many jobs one process takes at most; 0: no limit."""
        return 1 if self.once else self.max_jobs

    def plain(self) -> dict[str, Any]:
        """As JSON values, for a worker process."""
        return attrs.asdict(self)

    @classmethod
    def from_plain(cls, found: dict[str, Any]) -> Self:
        """Read what `plain` wrote."""
        return cls(**found)


def read_queues(text: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Queues and weights of `high,default` (strict order, no weights) or `high=3,low=1` (a missing weight is 1)."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts and text:
        message = f"queues {text!r}: a name is empty; expected names with commas between them, such as high,default"
        raise ArgumentInvalidError(message)
    named = [part.partition("=")[::2] for part in parts]
    queues = tuple(names.check_queue(name or DEFAULT_QUEUE) for name, _ in named)
    if len(set(queues)) < len(queues):
        message = f"queues {text!r}: a queue is named twice"
        raise ArgumentInvalidError(message)
    if not any("=" in part for part in parts):
        return queues, ()
    return queues, tuple(
        _weight(weight if "=" in part else "1", part) for part, (_, weight) in zip(parts, named, strict=True)
    )


def _weight(text: str, part: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_WEIGHT):
        message = f"queue {part!r}: expected NAME=WEIGHT with a weight from 1 to {MAX_WEIGHT}"
        raise ArgumentInvalidError(message)
    return int(text)


class QueueOrder:
    """In which order the next claim asks the queues: always the same, or each first as often as its weight says."""

    def __init__(self, options: WorkerOptions) -> None:
        """Begin with the heaviest."""
        self._queues = options.queues
        self._weights = dict(zip(options.queues, options.weights, strict=True)) if options.weights else {}
        self._total = sum(options.weights)
        self._credit = dict.fromkeys(options.queues, 0)
        self.most_at_once = self._total if self._weights else 0
        """The most jobs that a claim may take so that the weights hold; 0: any number."""

    def next(self) -> tuple[str, ...]:
        """The order of the next claim. Over any `sum(weights)` claims each queue was first as often as its weight."""
        if not self._weights:
            return self._queues
        for queue, weight in self._weights.items():
            self._credit[queue] += weight
        ordered = sorted(self._queues, key=self._credit.__getitem__, reverse=True)
        self._credit[ordered[0]] -= self._total
        return tuple(ordered)
