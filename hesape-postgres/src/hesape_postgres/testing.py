"""For tests: a PostgreSQL server of one's own, and the harness for the conformance suite."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from hesape.config import ConnectionSettings
from hesape_conformance.harness import Harness, HarnessUnavailableError, NotOfferedError
from hesape_conformance.servers import PrivateServer, ServerError, find_program, given_or_private

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from hesape_conformance.harness import RawRow
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


_SECRET: Final = "s3cr3t-pass.word"  # noqa: S105 - nobody asks for it
"""Stands in every address: it must never be shown."""
_STATES: Final = ("ready", "scheduled", "reserved", "failed")
_PLACES: Final = {
    "envelope": "envelope = %(value)s",
    "tenant": "tenant = %(value)s",
    "name": "name = %(value)s",
    "queue": "queue = %(value)s",
    "attempts": "attempts = %(value)s",
}
_FULL: Final = """\
create function {schema}.full_store() returns trigger language plpgsql as
  $$ begin raise exception 'could not extend file: No space left on device' using errcode = '53100'; end $$;
create trigger full_store before insert on {schema}.hesape_jobs for each row execute function {schema}.full_store();
"""


class PostgresHarness(Harness):
    """The driver on a private server, or the one that `--url` or the environment names. Each namespace is a schema."""

    driver: ClassVar[str] = "postgres"
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver for every connection."""

    def __init__(self, url: str = "") -> None:
        """Start nothing yet."""
        super().__init__(url)
        self._stack = contextlib.ExitStack()
        self._server: Server | None = None

    def start(self) -> None:
        """Find or start the server."""
        if self.url:
            self._address = self.url
        else:
            try:
                self._server = self._stack.enter_context(server())
            except ServerError as error:
                raise HarnessUnavailableError(str(error)) from error
            self._address = self._server.url
            self.can_restart = self._server.can_restart
        try:
            with self._connect() as conn:
                self._version = conn.execute("show server_version").fetchone()
        except psycopg.OperationalError as error:
            message = f"no PostgreSQL answers: {error}"
            raise HarnessUnavailableError(message) from error

    def stop(self) -> None:
        """Stop a server of our own."""
        self._stack.close()

    def server(self) -> tuple[str, str]:
        """What was tested."""
        return "PostgreSQL", str(self._version[0] if self._version else "").partition(" ")[0]

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """A connection whose schema is the namespace."""
        given = conninfo_to_dict(self._address)
        host, port = endpoint or (given.get("host", "127.0.0.1"), given.get("port", 5432))
        user, password = given.get("user", "postgres"), given.get("password") or _SECRET
        url = f"postgresql://{user}:{password}@{host}:{port}/{given.get('dbname', user)}"
        options = {"schema": namespace, **self.options}
        return ConnectionSettings(name="main", driver=self.driver, url=url, options=options)

    def secret(self) -> str | None:
        """The password in the address."""
        return str(conninfo_to_dict(self._address).get("password") or _SECRET)

    def endpoint(self) -> tuple[str, int] | None:
        """Where the server listens."""
        given = conninfo_to_dict(self._address)
        return str(given.get("host", "127.0.0.1")), int(str(given.get("port", 5432)))

    def raw(self, namespace: str) -> PostgresRaw:
        """The namespace's tables."""
        return PostgresRaw(self._address, namespace)

    def drop(self, namespace: str) -> None:
        """Remove the schema."""
        with self._connect() as conn:
            conn.execute(f'drop schema if exists "{namespace}" cascade'.encode())

    def restart(self) -> None:
        """Stop and start the private server, also a killed one."""
        self._private("restart").restart()

    def kill(self) -> None:
        """End the private server as a crash does."""
        self._private("kill").kill()

    def cut_sessions(self) -> None:
        """End every other session in the database."""
        with self._connect() as conn:
            conn.execute(
                "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )

    @contextlib.contextmanager
    def full(self, namespace: str) -> Iterator[None]:
        """Let every insert of a job fail as on a full disk."""
        with self._connect() as conn:
            conn.execute(_FULL.replace("{schema}", namespace).encode())
            yield
            conn.execute(f"drop function {namespace}.full_store cascade".encode())

    @contextlib.contextmanager
    def lend(self, namespace: str) -> Iterator[PostgresLoan]:
        """A connection as applications have them, with rows of another kind than the driver's."""
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(self._connect())
            own.execute(f'create schema if not exists "{namespace}"'.encode())
            own.execute(f'create table if not exists "{namespace}".scratch (text text)'.encode())
            conn = stack.enter_context(contextlib.closing(psycopg.connect(self._address, row_factory=dict_row)))
            yield PostgresLoan(conn, own, f'"{namespace}".scratch')

    @contextlib.contextmanager
    def unsuitable(self, namespace: str) -> Iterator[Mapping[str, object]]:
        """Connections that can't be joined."""
        other = f"{namespace}_other"
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(self._connect())
            own.execute(f'create database "{other}" template template0'.encode())
            stack.callback(lambda: own.execute(f'drop database "{other}" with (force)'.encode()))
            far = stack.enter_context(contextlib.closing(psycopg.connect(self._address, dbname=other)))
            far.execute("select 1")
            closed = psycopg.connect(self._address)
            closed.close()
            failed = stack.enter_context(contextlib.closing(psycopg.connect(self._address)))
            with contextlib.suppress(psycopg.Error):
                failed.execute("select 1/0")
            yield {
                "autocommit": own,
                "another database": far,
                "closed": closed,
                "failed": failed,
                "another kind": stack.enter_context(contextlib.closing(sqlite3.connect(":memory:"))),
                "an address": "postgresql://localhost",
            }

    def _private(self, what: str) -> PrivatePostgres:
        if not isinstance(self._server, PrivatePostgres):
            message = f"can't {what} a server that isn't this harness's own"
            raise NotOfferedError(message)
        return self._server

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self._address, autocommit=True)


class PostgresRaw:
    """A namespace's tables, by statements of its own."""

    def __init__(self, url: str, namespace: str) -> None:
        """Connect for each call: the server may have been restarted between two."""
        self._url = url
        self._schema = namespace

    def rows(self) -> list[RawRow]:
        """Every job."""
        found = self._run(
            "select id::text, envelope, tenant, name, queue, state, priority, attempts, lapses, exceptions, last_error"
            " from {schema}.hesape_jobs"
        )
        return [
            {
                "id": row[0],
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
        statement = f"update {{schema}}.hesape_jobs set {_PLACES[field]} where id = %(id)s::uuid returning 1"
        assert self._run(statement, {"value": value, "id": job_id}), f"no job {job_id}"

    def entries(self) -> int:
        """Rows beside the jobs."""
        tables = ("entries", "workers", "paused")
        counts = [self._run(f"select count(*) from {{schema}}.hesape_{table}") for table in tables]
        return sum(rows[0][0] for rows in counts if rows)

    def _run(self, statement: str, params: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        filled = statement.replace("{schema}", f'"{self._schema}"').encode()
        with psycopg.connect(self._url, autocommit=True) as conn, contextlib.suppress(psycopg.errors.UndefinedTable):
            return conn.execute(filled, params).fetchall()
        return []


class PostgresLoan:
    """An application's connection."""

    def __init__(self, conn: psycopg.Connection[Any], own: psycopg.Connection[tuple[Any, ...]], scratch: str) -> None:
        """Lend `conn`, and look at the table `scratch` over `own`."""
        self._conn = conn
        self._own = own
        self._scratch = scratch

    @property
    def connection(self) -> object:
        """What `tx=` takes."""
        return self._conn

    def begin(self) -> None:
        """Begin a transaction, as psycopg does with the first statement."""
        self._conn.execute("select 1")

    def commit(self) -> None:
        """Commit it."""
        self._conn.commit()

    def rollback(self) -> None:
        """Roll it back."""
        self._conn.rollback()

    def savepoint(self, name: str) -> None:
        """Set a savepoint."""
        self._conn.execute(f"savepoint {name}".encode())

    def rollback_to(self, name: str) -> None:
        """Roll back to it."""
        self._conn.execute(f"rollback to savepoint {name}".encode())

    def write(self, text: str) -> None:
        """Write a row of one's own."""
        self._conn.execute(f"insert into {self._scratch} values (%s)".encode(), (text,))

    def written(self) -> list[str]:
        """The committed rows."""
        return [text for (text,) in self._own.execute(f"select text from {self._scratch}".encode()).fetchall()]

    def session(self) -> Mapping[str, object]:
        """What a driver must leave alone."""
        idle = self._conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        settings = self._conn.execute("select name, setting from pg_settings where source <> 'override'").fetchall()
        left = self._conn.execute(
            "select array(select name from pg_prepared_statements) as prepared,"
            " array(select pg_listening_channels()) as channels,"
            " array(select objid from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()) as locks"
        ).fetchone()
        if idle:
            self._conn.rollback()
        return {
            **{row["name"]: row["setting"] for row in settings if "." not in row["name"]},
            **(left or {}),
            "autocommit": self._conn.autocommit,
            "isolation": self._conn.isolation_level,
            "rows": self._conn.row_factory,
            "prepare": self._conn.prepare_threshold,
        }


harness = PostgresHarness
