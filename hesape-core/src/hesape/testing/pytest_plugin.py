"""Fixtures for pytest. A conftest.py asks for them: `pytest_plugins = ["hesape.testing.pytest_plugin"]`.

They aren't offered unasked: a project that only uses hesape would pay for it at the start of every test run.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

from hesape.testing.fake_queue import FakeQueue, fake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hesape.app import App


class FakeApp(Protocol):
    """What the fixture `fake_app` is."""

    def __call__(self, app: App, connection: str | None = None) -> FakeQueue:
        """Let FakeQueues stand in for the connections of `app`, and return that of `connection`."""


@pytest.fixture
def fake_queue() -> FakeQueue:
    """A FakeQueue of its own, without an App."""
    return FakeQueue()


@pytest.fixture
def fake_app() -> Iterator[FakeApp]:
    """Call it with an App, as `fake`: until the test ends, FakeQueues stand in for its connections."""
    with ExitStack() as stack:

        def enter(app: App, connection: str | None = None) -> FakeQueue:
            return stack.enter_context(fake(app, connection))

        yield enter
