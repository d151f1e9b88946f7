from __future__ import annotations

import pytest

from hesape_conformance.suite import *  # noqa: F403 - the suite's tests and fixtures
from hesape_mysql.testing import MySQLHarness


@pytest.fixture(scope="session")
def hesape_harness() -> MySQLHarness:
    return MySQLHarness()
