"""A loopback relay between a driver and its server, which knows no protocol: it forwards, refuses, and cuts.

with Relay(server) as relay:
    queue = trial.via(relay.endpoint)
    relay.refuse()      # whoever connects is turned away, and the connections that there are end
    relay.accept()
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

PART = 65536


class Relay:
    """Forwards every connection to one server, until it is told otherwise."""

    def __init__(self, server: tuple[str, int]) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint: tuple[str, int] = self._listener.getsockname()[:2]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._refusing = False
        self.replies = 0
        """How many parts came from the server since `cut_at_reply` or the start."""
        self._cut_at: int | None = None
        self.was_cut = False
        """Whether `cut_at_reply` has cut."""

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

    def refuse(self) -> None:
        """End what is open and turn everybody away."""
        self._refusing = True
        self.cut()

    def accept(self) -> None:
        """Forward again."""
        self._refusing = False

    def cut(self) -> None:
        """End every connection, on both sides."""
        with self._lock:
            connections, self._open = self._open, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def cut_at_reply(self, n: int | None) -> None:
        """Hold back the n-th reply from now on, counted from 1, and end every connection instead; `None`: never."""
        with self._lock:
            self.replies, self._cut_at, self.was_cut = 0, n, False

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
            with self._lock:
                self._open |= {client, server}
            self._forward(client, server, lambda: True)
            self._forward(server, client, self._pass_reply)

    def _pass_reply(self) -> bool:
        with self._lock:
            self.replies += 1
            if self._cut_at is None or self.replies != self._cut_at:
                return True
            self.was_cut = True
        self.cut()
        return False

    def _forward(self, source: socket.socket, target: socket.socket, passes: Callable[[], bool]) -> None:
        def run() -> None:
            with contextlib.suppress(OSError):
                while part := source.recv(PART):
                    if not passes():
                        break
                    target.sendall(part)
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=run, daemon=True).start()
