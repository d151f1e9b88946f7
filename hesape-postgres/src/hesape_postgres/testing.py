"""For tests: a PostgreSQL server of one's own."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from hesape_conformance.servers import PrivateServer, find_program, given_or_private

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hesape_conformance.servers import Server

SERVER_VARIABLE = "HESAPE_TEST_POSTGRES_URL"


def server() -> AbstractContextManager[Server]:
    """The server that `HESAPE_TEST_POSTGRES_URL` names, or else a private one for as long as the block."""
    return given_or_private(SERVER_VARIABLE, PrivatePostgres)


class PrivatePostgres(PrivateServer):
    """A throw-away PostgreSQL: user and database `postgres`, no password, durable as it comes.

    `options` are settings of the server, as in `PrivatePostgres(max_connections=20)`.
    """

    label = "postgres"
    users = ("postgres",)
    stop_signal = signal.SIGINT  # a fast shutdown: it doesn't wait for clients to leave

    def __init__(self, **options: str | int) -> None:
        super().__init__()
        self.options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "port": self.port,
            "max_connections": 200,
            **options,
        }

    @property
    def url(self) -> str:
        """The address of the database `postgres`."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def preparation(self) -> list[str]:
        """Make an empty cluster."""
        access = ("-U", "postgres", "-A", "trust")
        return [_program("initdb"), "-D", "data", *access, "-E", "UTF8", "--no-locale", "--no-sync"]

    def command(self) -> list[str]:
        """The postmaster."""
        settings = [f"--{name}={value}" for name, value in self.options.items()]
        return [_program("postgres"), "-D", "data", *settings]

    def answers(self) -> bool:
        """Whether a client gets in."""
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=2):
            return True
        return False


def _program(name: str) -> str:
    """The newest installed version's program: Debian keeps them off PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True)
    return find_program(name, folders=versions)
