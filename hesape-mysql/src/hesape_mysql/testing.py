"""For tests: a MariaDB server of one's own, which stands in for MySQL, and the harness for the conformance suite."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, unquote, urlsplit

import pymysql
from pymysql.cursors import Cursor, DictCursor
from pymysql.err import MySQLError, OperationalError

from hesape.config import ConnectionSettings
from hesape_conformance.harness import Harness, HarnessUnavailableError, NotOfferedError
from hesape_conformance.servers import PrivateServer, ServerError, find_program, given_or_private
from hesape_mysql.errors import NO_TABLE, code_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from hesape_conformance.harness import RawRow
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
            contextlib.suppress(OperationalError),
            pymysql.connect(host="127.0.0.1", port=self.port, user="root", database="test", connect_timeout=2),
        ):
            return True
        return False


_LOOPBACK: Final = {"127.0.0.1", "localhost"}
_USER: Final = "hesape"
_SECRET: Final = "s3cr3t-pass.word"  # noqa: S105 - it stands in the address, and must never be shown
_STATES: Final = ("ready", "scheduled", "reserved", "failed")
_FIELDS: Final = frozenset({"envelope", "tenant", "name", "queue", "attempts"})


class MySQLHarness(Harness):
    """The driver on a private server, or the one that `--url` or the environment names. A namespace is a prefix."""

    driver: ClassVar[str] = "mysql"
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver for every connection."""

    def __init__(self, url: str = "") -> None:
        """Start nothing yet."""
        super().__init__(url)
        self._stack = contextlib.ExitStack()
        self._server: Server | None = None
        self._version = ""

    def start(self) -> None:
        """Find or start the server; on one of our own make a user without a superuser's privileges."""
        try:
            if self.url:
                self._address = self.url
            else:
                self._server = self._stack.enter_context(server())
                self._address = self._server.url
                self.can_restart = self._server.can_restart
            if isinstance(self._server, PrivateMariaDB):
                for host in ("localhost", "127.0.0.1"):
                    user = f"'{_USER}'@'{host}'"
                    self._as_root(f"create user {user} identified by '{_SECRET}'", f"grant all on `test%`.* to {user}")
                self._address = self._server.url.replace("root@", f"{_USER}:{quote(_SECRET)}@")
            self._version = str(self._ask("select version()")[0][0])
        except (ServerError, OperationalError) as error:
            message = f"no MySQL or MariaDB answers: {error}"
            raise HarnessUnavailableError(message) from error

    def stop(self) -> None:
        """Stop a server of our own."""
        self._stack.close()

    def server(self) -> tuple[str, str]:
        """What was tested."""
        return ("MariaDB" if "MariaDB" in self._version else "MySQL"), self._version.partition("-")[0]

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """A connection whose tables begin with the namespace."""
        url = urlsplit(self._address)
        if endpoint is not None:
            userinfo = url.netloc.rpartition("@")[0]
            url = url._replace(netloc=f"{userinfo}@{endpoint[0]}:{endpoint[1]}")
        tls = "off" if url.hostname in _LOOPBACK else "prefer"
        options = {"prefix": f"{namespace}_", "tls": tls, **self.options}
        return ConnectionSettings(name="main", driver=self.driver, url=url.geturl(), options=options)

    def secret(self) -> str | None:
        """The password in the address."""
        password = urlsplit(self._address).password
        return None if password is None else unquote(password)

    def endpoint(self) -> tuple[str, int] | None:
        """Where the server listens."""
        url = urlsplit(self._address)
        return url.hostname or "127.0.0.1", url.port or 3306

    def raw(self, namespace: str) -> MySQLRaw:
        """The namespace's tables."""
        return MySQLRaw(self, f"{namespace}_")

    def drop(self, namespace: str) -> None:
        """Remove its tables."""
        pattern = namespace.replace("_", "\\_") + "\\_%"
        tables = self._ask(
            "select table_name from information_schema.tables where table_schema = database() and table_name like %s",
            (pattern,),
        )
        if tables:
            self._ask(f"drop table {', '.join(f'`{name}`' for (name,) in tables)}")

    def restart(self) -> None:
        """Stop and start the private server, also a killed one."""
        self._private("restart").restart()

    def kill(self) -> None:
        """End the private server as a crash does."""
        self._private("kill").kill()

    def cut_sessions(self) -> None:
        """End every other session of this user."""
        sessions = self._ask(
            "select id from information_schema.processlist where id <> connection_id()"
            " and user = substring_index(current_user(), '@', 1)"
        )
        for (session,) in sessions:
            with contextlib.suppress(MySQLError):  # it has ended by itself
                self._ask(f"kill {session}")

    @contextlib.contextmanager
    def full(self, namespace: str) -> Iterator[None]:
        """Make the server read-only for users who aren't superusers."""
        self._private("make read-only")
        self._as_root("set global read_only = on")
        try:
            yield
        finally:
            self._as_root("set global read_only = off")

    @contextlib.contextmanager
    def lend(self, namespace: str) -> Iterator[MySQLLoan]:
        """A connection as applications have them, with rows of another kind than the driver's."""
        scratch = f"{namespace}_scratch"
        self._ask(f"create table if not exists {scratch} (text text) engine = InnoDB")
        with contextlib.closing(self.connect(cursorclass=DictCursor)) as conn:
            yield MySQLLoan(conn, self, scratch)

    @contextlib.contextmanager
    def unsuitable(self, namespace: str) -> Iterator[Mapping[str, object]]:
        """Connections that can't be joined."""
        other = f"test_{namespace}_other"
        self._ask(f"create database `{other}`")
        with contextlib.ExitStack() as stack:
            stack.callback(self._ask, f"drop database `{other}`")
            far = stack.enter_context(contextlib.closing(self.connect(database=other)))
            far.begin()
            closed = self.connect()
            closed.close()
            yield {
                "autocommit": stack.enter_context(contextlib.closing(self.connect(autocommit=True))),
                "another database": far,
                "closed": closed,
                "another kind": stack.enter_context(contextlib.closing(sqlite3.connect(":memory:"))),
                "an address": "mysql://localhost/test",
            }

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        """A connection to the database as an application opens it."""
        url = urlsplit(self._address)
        known: Any = {
            "host": url.hostname,
            "port": url.port or 3306,
            "user": unquote(url.username or ""),
            "password": unquote(url.password or ""),
            "database": url.path.strip("/"),
            "charset": "utf8mb4",
            "connect_timeout": 5,
            # The client reads every certificate of the system for each connection, which takes longer than the rest.
            "ssl_disabled": url.hostname in _LOOPBACK,
            **options,
        }
        return pymysql.connect(**known)

    def _ask(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with contextlib.closing(self.connect(autocommit=True)) as conn, conn.cursor(Cursor) as cursor:
            cursor.execute(statement, tuple(values))
            return list(cursor.fetchall()) if cursor.description else []

    def _as_root(self, *statements: str) -> None:
        options: Any = {
            "host": "127.0.0.1",
            "port": self._private("administer").port,
            "user": "root",
            "ssl_disabled": True,
        }
        with contextlib.closing(pymysql.connect(**options)) as conn, conn.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _private(self, what: str) -> PrivateMariaDB:
        if not isinstance(self._server, PrivateMariaDB):
            message = f"can't {what} a server that isn't this harness's own"
            raise NotOfferedError(message)
        return self._server


class MySQLRaw:
    """A namespace's tables, by statements of its own."""

    def __init__(self, harness: MySQLHarness, prefix: str) -> None:
        """Connect for each call: the server may have been restarted between two."""
        self._harness = harness
        self._prefix = prefix

    def rows(self) -> list[RawRow]:
        """Every job."""
        found = self._run(
            "select lower(hex(id)), envelope, tenant, name, queue, state, priority, attempts, lapses, exceptions,"
            f" last_error from {self._prefix}jobs"
        )
        return [
            {
                "id": "-".join((row[0][:8], row[0][8:12], row[0][12:16], row[0][16:20], row[0][20:])),
                "envelope": row[1],
                "tenant": row[2],
                "name": row[3],
                "queue": row[4],
                "state": _STATES[row[5]],
                "priority": row[6],
                "attempts": row[7],
                "lapses": row[8],
                "exceptions": row[9],
                "last_error": row[10],
            }
            for row in found
        ]

    def overwrite(self, job_id: str, field: str, value: object) -> None:
        """Set one column of a job."""
        assert field in _FIELDS, field
        job = bytes.fromhex(job_id.replace("-", ""))
        assert self._run(f"select 1 from {self._prefix}jobs where id = %s", (job,)), f"no job {job_id}"
        self._run(f"update {self._prefix}jobs set {field} = %s where id = %s", (value, job))

    def entries(self) -> int:
        """Rows beside the jobs."""
        counts = [self._run(f"select count(*) from {self._prefix}{name}") for name in ("entries", "workers", "paused")]
        return sum(rows[0][0] for rows in counts if rows)

    def _run(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._harness._ask(statement, values)  # noqa: SLF001 - the harness's own
        except MySQLError as error:
            if code_of(error) == NO_TABLE:
                return []
            raise


class MySQLLoan:
    """An application's connection."""

    def __init__(self, conn: pymysql.Connection[Any], harness: MySQLHarness, scratch: str) -> None:
        """Lend `conn`, and look at the table `scratch` over another."""
        self._conn = conn
        self._harness = harness
        self._scratch = scratch

    @property
    def connection(self) -> object:
        """What `tx=` takes."""
        return self._conn

    def begin(self) -> None:
        """Begin a transaction."""
        self._conn.begin()

    def commit(self) -> None:
        """Commit it."""
        self._conn.commit()

    def rollback(self) -> None:
        """Roll it back."""
        self._conn.rollback()

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self._execute(f"savepoint `{name}`")

    def rollback_to(self, name: str) -> None:
        """Roll back to it."""
        self._execute(f"rollback to savepoint `{name}`")

    def write(self, text: str) -> None:
        """Write a row of one's own."""
        self._execute(f"insert into {self._scratch} values (%s)", text)

    def written(self) -> list[str]:
        """The committed rows."""
        return [row[0] for row in self._harness._ask(f"select text from {self._scratch}")]  # noqa: SLF001

    def session(self) -> Mapping[str, object]:
        """What a driver must leave alone: the session's variables and what hangs on the connection."""
        moving = {
            "timestamp",
            "last_insert_id",
            "in_transaction",
            "identity",
            "rand_seed1",
            "rand_seed2",
            "gtid_seq_no",
        }
        found = self._execute("show session variables")
        return {
            **{row["Variable_name"]: row["Value"] for row in found if row["Variable_name"] not in moving},
            "rows": self._conn.cursorclass,
            "character set": self._conn.charset,
        }

    def _execute(self, statement: str, *values: object) -> list[dict[str, Any]]:
        with self._conn.cursor(DictCursor) as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []


harness = MySQLHarness
