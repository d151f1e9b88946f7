"""What a supervisor and its worker process tell each other: lines of JSON over a pair of sockets."""

from __future__ import annotations

import json
import select
import socket
from typing import Any, Final, Self

_CHUNK: Final = 65_536


class Control:
    """One end. The other's death is the end of what is received."""

    def __init__(self, end: socket.socket) -> None:
        """Talk over `end`."""
        self.socket = end
        self._rest = b""
        self.over = False
        """Whether the other end is gone."""

    @classmethod
    def at(cls, fd: int) -> Self:
        """The end behind an inherited file descriptor."""
        return cls(socket.socket(fileno=fd))

    def send(self, **said: Any) -> None:
        """Say something. To one that reads nothing, or is gone, it is lost: every line is said again, or has no use."""
        try:
            self.socket.send(json.dumps(said).encode() + b"\n", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, OSError):
            return

    def greet(self, said: dict[str, Any]) -> None:
        """Say the first line, of any length."""
        self.socket.sendall(json.dumps(said).encode() + b"\n")

    def receive(self, timeout_s: float) -> list[dict[str, Any]] | None:
        """The lines that came within `timeout_s`, perhaps none; `None`: the other end is gone."""
        if self.over:
            return None
        if not select.select([self.socket], [], [], timeout_s)[0]:
            return []
        try:
            data = self.socket.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self.over = True
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
