"""What goes wrong and when: a schedule that a seed decides alone."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable


class Blow(StrEnum):
    """One thing that goes wrong."""

    KILL_WORKER = "kill a worker"
    KILL_SUPERVISOR = "kill a supervisor"
    KILL_MACHINE = "kill a supervisor and its workers"
    KILL_PRODUCER = "kill a producer"
    FREEZE_WORKER = "freeze a worker past its lease"
    FREEZE_MACHINE = "freeze a supervisor and its workers past their lease"
    STALL_WORKER = "stall a worker for less than its lease"
    STALL_SUPERVISOR = "stall a supervisor"
    STOP = "ask a supervisor to stop"
    CUT = "end every session"
    KILL_SERVER = "kill the server"
    RESTART_SERVER = "restart the server"
    OUTAGE = "make the store unreachable"


DECK: Final = (
    *(Blow.KILL_WORKER,) * 5,
    *(Blow.FREEZE_WORKER,) * 3,
    Blow.FREEZE_MACHINE,
    *(Blow.KILL_MACHINE,) * 2,
    Blow.KILL_SUPERVISOR,
    Blow.KILL_PRODUCER,
    Blow.STALL_WORKER,
    Blow.STALL_SUPERVISOR,
    Blow.STOP,
    Blow.CUT,
    Blow.KILL_SERVER,
    Blow.RESTART_SERVER,
    Blow.OUTAGE,
)
"""Dealt again and again; what a store or its harness can't suffer is left out."""
EVERY_S: Final = 1.2
"""Between two blows, on average."""
FIRST_S: Final = 0.5
"""Before the first."""


@attrs.frozen(kw_only=True)
class Strike:
    """A blow, when it falls and on whom."""

    at_s: float
    blow: Blow
    pick: float
    """Which of those whom it may hit, 0 to 1."""
    for_s: float
    """How much longer than it must a stall or an outage lasts, 0 to 1."""


def schedule(seed: int, seconds: float, possible: Iterable[Blow]) -> list[Strike]:
    """The strikes of a run, in order; equal for an equal seed, time and set of possible blows."""
    rng, known = random.Random(seed), frozenset(possible)
    deck = [blow for blow in DECK if blow in known]
    strikes: list[Strike] = []
    at_s, hand = FIRST_S, list[Blow]()
    while deck and at_s < seconds:
        if not hand:
            hand = rng.sample(deck, len(deck))
        strikes.append(Strike(at_s=at_s, blow=hand.pop(), pick=rng.random(), for_s=rng.random()))
        at_s += rng.uniform(0.5, 1.5) * EVERY_S
    return strikes
