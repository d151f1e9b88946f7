"""Fixtures for pytest. A conftest.py asks for them: `pytest_plugins = ["hesape.testing.pytest_plugin"]`.

They aren't offered unasked: a project that only uses hesape would pay for it at the start of every test run.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from hesape.testing.fake_queue import FakeQueue, fake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hesape.app import App


@pytest.fixture
def fake_queue() -> FakeQueue:
    """A FakeQueue of its own, without an App."""
    return FakeQueue()


@pytest.fixture
def fake_app() -> Iterator[Callable[[App], FakeQueue]]:
    """Call it with an App: until the test ends, FakeQueues stand in for its connections."""
    with ExitStack() as stack:

        def enter(app: App, connection: str | None = None) -> FakeQueue:
            return stack.enter_context(fake(app, connection))

        yield enter
