"""The machine as a check of the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape_conformance.catalogue import rule
from hesape_conformance.machine.run import run

if TYPE_CHECKING:
    from hesape_conformance.trial import Trial


@rule("machine", "Random steps on two tenants and three queues, each followed by a comparison of all that is stored",
      longest_s=1_800)  # fmt: skip
def walk(trial: Trial) -> None:
    """Walk, and let the report tell what the steps really produced."""
    trial.notes.append(run(trial))
