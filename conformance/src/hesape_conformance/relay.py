"""A loopback relay between a driver and its server, which knows no protocol: it forwards, refuses, and cuts.

with Relay(server) as relay:
    queue = trial.via(relay.endpoint)
    relay.refuse()      # whoever connects is turned away, and the connections that there are end
    relay.accept()
    relay.cut_at(2, Moment.REPLY)

A reply is what comes from the server, in however many parts, until the client speaks again; a request likewise.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

PART = 65536


class Moment(StrEnum):
    """Where a connection is cut."""

    REQUEST = "before the request arrives"
    TORN_REQUEST = "in the middle of the request"
    REPLY = "after the server's work, before the reply arrives"
    TORN_REPLY = "in the middle of the reply"

    @property
    def of_request(self) -> bool:
        """Whether requests are counted for it, not replies."""
        return self in {Moment.REQUEST, Moment.TORN_REQUEST}


@attrs.define(eq=False)
class _Connection:
    client: socket.socket
    server: socket.socket
    speaker: str = ""
    """Who spoke last."""
    over: bool = False
    """Whether it was cut. The server still finishes what it was sent, unheard."""


class Relay:
    """Forwards every connection to one server, until it is told otherwise."""

    def __init__(self, server: tuple[str, int]) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: tuple[str, int] = self._listener.getsockname()[:2]
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._refusing = False
        self.requests = self.replies = 0
        """How many began since `cut_at` or the start."""
        self._cut_at: int | None = None
        self._moment = Moment.REPLY
        self.was_cut = False
        """Whether `cut_at` has cut."""

    def __enter__(self) -> Self:
        """Begin to forward."""
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End every connection and stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for connection in self._those_open():
            _shut(connection.server, socket.SHUT_RDWR)

    def refuse(self) -> None:
        """End what is open and turn everybody away."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Forward again."""
        self._refusing = False

    def cut(self) -> None:
        """End every connection: for its client at once, for the server when it has done what it was sent."""
        for connection in self._those_open():
            connection.over = True
            _shut(connection.client, socket.SHUT_RDWR)
            _shut(connection.server, socket.SHUT_WR)

    def cut_at(self, n: int | None, moment: Moment = Moment.REPLY) -> None:
        """Cut every connection at the n-th request or reply from now on, counted from 1; `None`: never."""
        with self._lock:
            self.requests = self.replies = 0
            self._cut_at, self._moment, self.was_cut = n, moment, False

    def cut_at_reply(self, n: int | None) -> None:
        """Hold back the n-th reply from now on, counted from 1, and end every connection instead; `None`: never."""
        self.cut_at(n, Moment.REPLY)

    def settled(self, within_s: float = 5.0) -> bool:
        """Wait until the server has ended its side of every connection that was cut; whether it has."""
        deadline = time.monotonic() + within_s
        while any(connection.over for connection in self._those_open()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.001)
        return True

    def _those_open(self) -> list[_Connection]:
        with self._lock:
            return list(self._open)

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server, timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(client, server)
            with self._lock:
                self._open.add(connection)
            for run in (self._ask, self._answer):
                threading.Thread(target=run, args=(connection,), daemon=True).start()

    def _ask(self, connection: _Connection) -> None:
        """Carry what the client says, until one of the two ends it."""
        self._carry(connection, connection.client, connection.server, self._count_request)
        _shut(connection.server, socket.SHUT_WR)

    def _answer(self, connection: _Connection) -> None:
        """Carry what the server says, also when nobody listens any more, until it ends."""
        self._carry(connection, connection.server, connection.client, self._count_reply)
        with self._lock:
            self._open.discard(connection)
        for end in (connection.client, connection.server):
            _shut(end, socket.SHUT_RDWR)
            end.close()

    def _carry(
        self,
        connection: _Connection,
        source: socket.socket,
        target: socket.socket,
        count: Callable[[_Connection], bool],
    ) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(PART):
                if not count(connection):
                    if not connection.over:
                        target.sendall(part)
                    continue
                connection.over = True  # before the half is sent: a server may answer that, too
                if self._moment in {Moment.TORN_REQUEST, Moment.TORN_REPLY}:
                    target.sendall(part[: len(part) // 2])
                self.cut()

    def _count_request(self, connection: _Connection) -> bool:
        with self._lock:
            begins, connection.speaker = connection.speaker != "client", "client"
            self.requests += begins
            return begins and self._moment.of_request and self._cuts(self.requests)

    def _count_reply(self, connection: _Connection) -> bool:
        with self._lock:
            begins, connection.speaker = connection.speaker != "server", "server"
            if connection.over:
                return False
            self.replies += begins
            return begins and not self._moment.of_request and self._cuts(self.replies)

    def _cuts(self, count: int) -> bool:
        cuts = count == self._cut_at and not self.was_cut
        self.was_cut = self.was_cut or cuts
        return cuts


def _shut(end: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(how)
