"""For tests: a MariaDB server of one's own, which stands in for MySQL."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pymysql

from hesape_conformance.servers import PrivateServer, find_program, given_or_private

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hesape_conformance.servers import Server

SERVER_VARIABLE = "HESAPE_TEST_MYSQL_URL"


def server() -> AbstractContextManager[Server]:
    """The server that `HESAPE_TEST_MYSQL_URL` names, or else a private one for as long as the block."""
    return given_or_private(SERVER_VARIABLE, PrivateMariaDB)


class PrivateMariaDB(PrivateServer):
    """A throw-away MariaDB: user `root` without a password, database `test`, every setting as it comes.

    That includes a character set that isn't utf8mb4. `options` are settings of the server, as in
    `PrivateMariaDB(innodb_data_file_path="ibdata1:12M:autoextend:max:32M")`.
    """

    label = "mariadb"
    users = ("mysql",)

    def __init__(self, **options: str | int) -> None:
        super().__init__()
        self.options = {
            "datadir": self.folder / "data",
            "socket": self.folder / "mysql.sock",
            "pid-file": self.folder / "mysql.pid",
            "bind-address": "127.0.0.1",
            "port": self.port,
            "max-connections": 200,
            **{name.replace("_", "-"): value for name, value in options.items()},
        }

    @property
    def url(self) -> str:
        """The address of the database `test`."""
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def preparation(self) -> list[str]:
        """Make the system's tables and the database `test`."""
        return [
            find_program("mariadb-install-db"),
            "--no-defaults",
            f"--datadir={self.folder / 'data'}",
            "--auth-root-authentication-method=normal",
        ]

    def command(self) -> list[str]:
        """The daemon itself, without the script that would start it again."""
        settings = [f"--{name}={value}" for name, value in self.options.items()]
        return [find_program("mariadbd"), "--no-defaults", *settings]

    def answers(self) -> bool:
        """Whether a client gets in."""
        with (
            contextlib.suppress(pymysql.err.OperationalError),
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", database="test", connect_timeout=2),
        ):
            return True
        return False
