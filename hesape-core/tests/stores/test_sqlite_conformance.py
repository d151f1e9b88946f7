"""Every rule of the contract, on SQLite."""

from __future__ import annotations

import pytest

from hesape.drivers.sqlite.testing import SqliteHarness
from hesape_conformance.suite import *  # noqa: F403 - the suite is made to be imported so


@pytest.fixture(scope="session")
def hesape_harness() -> SqliteHarness:
    return SqliteHarness()
