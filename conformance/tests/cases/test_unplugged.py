"""The network to the server is gone for a while: at first nothing answers, then connections are turned away.

It is gone for 8 s, or for as many as `HESAPE_CUT_S` says.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from cases.conftest import Site

STATES = ("the store doesn't take it", "the store is back")
CUT_S = float(os.environ.get("HESAPE_CUT_S", "8"))
LONGEST_PAUSE_S = 2.0
"""The longest that a worker doesn't ask a store that is back; a machine under load adds its own."""


class Cable:
    """Carries connections to a server until it is pulled; what is under way then arrives when it is back."""

    def __init__(self, server: tuple[str, int]) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: tuple[str, int] = self._listener.getsockname()[:2]
        self._plugged = threading.Event()
        self._plugged.set()
        self._refusing = False
        self._open: list[socket.socket] = []

    def __enter__(self) -> Self:
        """Begin to carry."""
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.refuse()

    def pull(self) -> None:
        """Carry nothing more, and say so to nobody."""
        self._plugged.clear()

    def refuse(self) -> None:
        """End what is open, and turn away whoever connects."""
        self._refusing = True
        self._plugged.set()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def plug(self) -> None:
        """Carry again."""
        self._refusing = False
        self._plugged.set()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        self._plugged.wait()
        with client, contextlib.suppress(OSError):
            if self._refusing:
                return
            with socket.create_connection(self._server) as server:
                self._open += (client, server)
                back = threading.Thread(target=self._forward, args=(server, client), daemon=True)
                back.start()
                self._forward(client, server)
                back.join()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(65_536):
                self._plugged.wait()
                target.sendall(part)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def cable(site: Site) -> Iterator[Cable]:
    server = site.harness.endpoint()
    assert server is not None
    with Cable(server) as cable:
        site.configure(cable.endpoint)
        yield cable


@pytest.mark.timeout(180)
@pytest.mark.parametrize("harness", ["mysql", "postgres", "redis"], indirect=True)
def test_a_worker_comes_back_by_itself_and_its_running_job_is_not_disturbed(site: Site, cable: Cable) -> None:
    worker = site.start("--concurrency", "2")
    site.push("quick", number=0)
    pid = site.noted("quick", 0)[3]
    site.push("sleep", seconds=CUT_S + 1, number=1)
    site.noted("sleep", 1)
    before = site.log()
    cable.pull()
    time.sleep(CUT_S / 2)
    cable.refuse()
    time.sleep(CUT_S / 2)
    site.push("quick", number=2)
    cable.plug()
    site.noted("quick", 2, within_s=LONGEST_PAUSE_S + 15)
    site.noted("slept", 1, within_s=30)
    assert worker.poll() is None
    deadline = time.monotonic() + 30
    while set(map(tuple, _told(site.log()).values())) != {STATES}:
        assert time.monotonic() < deadline, site.log()
        time.sleep(0.1)
    assert site.stop() == [0], site.log()
    assert Counter(line[0] for line in site.notes()) == {"quick": 2, "sleep": 1, "slept": 1}
    assert {line[3] for line in site.notes()} == {pid}
    assert site.queue.counts().size == 0
    secret = site.harness.secret()
    assert secret
    assert secret not in site.log()
    log = site.log().removeprefix(before)
    told = _told(log)
    assert any("connection main" in who for who in told), log
    assert set(map(tuple, told.values())) == {STATES}, log
    others = 2  # a driver's own sessions, for waking and for liveness
    said = sum(" WARNING " in line or " ERROR " in line for line in log.splitlines())
    assert said <= 2 * (len(told) + others), log


def _told(log: str) -> dict[str, list[str]]:
    """What each part of a worker said about the store, in order."""
    states: dict[str, list[str]] = {}
    for line in log.splitlines():
        for state in STATES:
            if state in line:
                who = line.partition(" WARNING ")[2].partition(state)[0]
                states.setdefault(who, []).append(state)
    return states
