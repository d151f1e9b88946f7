"""For tests: a Redis server of one's own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hesape_conformance.servers import PrivateServer, find_program, given_or_private

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hesape_conformance.servers import Server

SERVER_VARIABLE = "HESAPE_TEST_REDIS_URL"


def server() -> AbstractContextManager[Server]:
    """The server that `HESAPE_TEST_REDIS_URL` names, or else a private one for as long as the block."""
    return given_or_private(SERVER_VARIABLE, PrivateRedis)


class PrivateRedis(PrivateServer):
    """A throw-away Redis with its append-only file on, or with no persistence at all.

    `options` are settings of the server, as in `PrivateRedis(appendonly=False, maxmemory="4mb")`.
    """

    label = "redis"
    users = ("redis",)

    def __init__(self, *, appendonly: bool = True, **options: str | int) -> None:
        super().__init__()
        self.options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            **{name.replace("_", "-"): value for name, value in options.items()},
        }

    @property
    def url(self) -> str:
        """The address of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The server in the foreground, without a configuration file."""
        settings = [word for name, value in self.options.items() for word in (f"--{name}", str(value))]
        return [find_program("redis-server"), *settings]

    def answers(self) -> bool:
        """Whether a ping comes back: not before the append-only file is loaded."""
        with (
            contextlib.suppress(redis.ConnectionError),
            redis.Redis(port=self.port, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client,
        ):
            return bool(client.ping())
        return False
