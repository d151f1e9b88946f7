import pytest
from hesape_toy.testing import ToyHarness

from hesape_conformance.suite import *  # noqa: F403


@pytest.fixture(scope="session")
def hesape_harness() -> ToyHarness:
    return ToyHarness()
