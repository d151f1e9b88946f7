"""Every rule of the contract, on Redis."""

from __future__ import annotations

import pytest

from hesape_conformance.suite import *  # noqa: F403 - the suite is made to be imported so
from hesape_redis.testing import RedisHarness


@pytest.fixture(scope="session")
def hesape_harness() -> RedisHarness:
    return RedisHarness()
