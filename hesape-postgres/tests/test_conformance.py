"""Every rule of the contract, on PostgreSQL."""

from __future__ import annotations

import pytest

from hesape_conformance.suite import *  # noqa: F403 - the suite is made to be imported so
from hesape_postgres.testing import PostgresHarness


@pytest.fixture(scope="session")
def hesape_harness() -> PostgresHarness:
    return PostgresHarness()
