"""The checks of the sweep: one for each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape.driver import Fact
from hesape_conformance.catalogue import rule
from hesape_conformance.sweep.cutting import sweep
from hesape_conformance.sweep.operations import OPERATIONS

if TYPE_CHECKING:
    from hesape_conformance.sweep.operations import Operation
    from hesape_conformance.trial import Trial


def _check(operation: Operation) -> None:
    def run(trial: Trial) -> None:
        sweep(trial, operation)

    run.__name__ = operation.name
    sentence = f"{operation.name.replace('_', ' ').capitalize()} may be cut at each request and at each reply"
    rule("sweep", sentence, facts=[Fact.NETWORKED], longest_s=600)(run)


for _operation in OPERATIONS:
    _check(_operation)
