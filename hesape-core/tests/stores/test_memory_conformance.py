"""Every rule of the contract, on memory."""

from __future__ import annotations

import pytest

from hesape.drivers.memory.testing import MemoryHarness
from hesape_conformance.suite import *  # noqa: F403 - the suite is made to be imported so


@pytest.fixture(scope="session")
def hesape_harness() -> MemoryHarness:
    return MemoryHarness()
