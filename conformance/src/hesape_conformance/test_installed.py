"""What the command runs: the suite on the installed harness that it names."""

from __future__ import annotations

import os

import pytest

from hesape_conformance.harness import Harness
from hesape_conformance.installed import find_harness
from hesape_conformance.suite import *  # noqa: F403 - the suite is its tests and fixtures


@pytest.fixture(scope="session")
def hesape_harness() -> Harness:
    """The harness of the driver that the command was told."""
    return find_harness(os.environ["HESAPE_CONFORMANCE_DRIVER"])(os.environ.get("HESAPE_CONFORMANCE_URL", ""))
