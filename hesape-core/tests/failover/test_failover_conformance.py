"""Every rule of the contract, on a failover connection whose first store takes no pushes.

What a composite answers otherwise is listed by the harness, each with its reason.
"""

from __future__ import annotations

import pytest

from hesape.drivers.failover.testing import FailoverHarness
from hesape_conformance.suite import *  # noqa: F403 - the suite is made to be imported so


@pytest.fixture(scope="session")
def hesape_harness() -> FailoverHarness:
    return FailoverHarness()
