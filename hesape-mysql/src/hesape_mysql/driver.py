"""The MySQL driver: each call takes a connection, runs its statements, and gives it back."""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Self

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.errors import SchemaError
from hesape.records import Claim, Claimed, Counts, Key, Migration, NewRow, Row, WorkerRow
from hesape_mysql import claiming, coordinating, lent, looking, schema, settling, storing
from hesape_mysql.liveness import Registry
from hesape_mysql.plugin import SPEC
from hesape_mysql.pool import OwnSession, Pool
from hesape_mysql.records import text
from hesape_mysql.settings import Settings, parse
from hesape_mysql.statements import ASK_IF, CLOCK, IS_READY, MAY_BE_DUE, PAUSE, RESUME, VERSION, Statements
from hesape_mysql.waking import Looker, Waker


class MySQLDriver(Driver):
    """Jobs in a MariaDB or MySQL database."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: Settings) -> None:
        """Open nothing: the first call connects."""
        self._settings = settings
        self._statements = Statements(settings.prefix)
        self._pool = Pool(settings)
        self._registry = Registry(self._pool, self._statements)
        self._waker = Waker(settings.poll_s)
        self._store_id: bytes | None = None
        self._packet = 0

    @classmethod
    def from_settings(cls, settings: ConnectionSettings) -> Self:
        """Open what a connection's settings name."""
        return cls(parse(settings))

    def __repr__(self) -> str:
        """Name the server and the database, never a password (E4)."""
        return f"<MySQLDriver {self._settings.where}>"

    def _session(self) -> AbstractContextManager[OwnSession]:
        """A connection of our own, to tables that are there."""
        if self._store_id is None:
            self._open_store()
        return self._pool.session()

    @contextmanager
    def _lent(self, tx: object) -> Iterator[lent.LentSession]:
        """A session on a lent connection; our own tables are looked after on a connection of our own first."""
        connection = lent.unwrapped(tx)
        store_id = self._store_id or self._open_store()
        with lent.borrowed(connection, self._statements, store_id, self._packet) as session:
            yield session

    def _open_store(self) -> bytes:
        with self._pool.session() as session:
            found = schema.version(session, self._statements)
            if found < schema.LATEST:
                if not self._settings.migrate:
                    message = (
                        f"the tables {self._settings.prefix}* of {self._settings.where} are at step {found}, this"
                        f" version needs {schema.LATEST}; run `hesape migrate`"
                    )
                    raise SchemaError(message)
                schema.migrate(session, self._settings, self._statements)
            store_id = schema.store_id(session, self._statements)
            self._packet = session.packet
        self._store_id = store_id
        return store_id

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        if tx is not None:
            with self._lent(tx) as lent_session:
                storing.store_lent(lent_session, self._statements, rows)
            return
        with self._session() as session:
            storing.store(session, self._statements, rows)
        self._waker.stored({row.queue for row in rows})

    def reserve(self, claim: Claim) -> Claimed:
        with self._session() as session:
            return claiming.reserve(session, self._statements, claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        if tx is not None:
            with self._lent(tx) as lent_session:
                return settling.delete_lent(lent_session, self._statements, keys, repeat=repeat)
        with self._session() as session:
            return settling.delete(session, self._statements, keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        with self._lent(tx) if tx is not None else self._session() as session:
            return settling.release(
                session, self._statements, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions
            )

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        with self._lent(tx) if tx is not None else self._session() as session:
            return settling.fail(session, self._statements, key, error=error, exceptions=exceptions)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        with self._session() as session:
            return settling.extend(session, self._statements, keys, lease_us)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        with self._session() as session:
            settling.hand_back(session, self._statements, keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        self._ready()
        return self._registry.beat(worker, ttl_us, lease_us, but)

    def retire(self, worker: str) -> int:
        self._ready()
        return self._registry.retire(worker)

    def rescue(self) -> int:
        self._ready()
        return self._registry.rescue()

    def workers(self) -> list[WorkerRow]:
        self._ready()
        return self._registry.workers()

    def _ready(self) -> None:
        if self._store_id is None:
            self._open_store()

    # Look and repair.

    def counts(self, queue: str) -> Counts:
        with self._session() as session:
            return looking.counts(session, self._statements, queue)

    def queues(self) -> list[str]:
        with self._session() as session:
            return looking.queues(session, self._statements)

    def oldest_pending(self, queue: str) -> int | None:
        with self._session() as session:
            return looking.oldest_pending(session, self._statements, queue)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        with self._session() as session:
            return looking.failed(session, self._statements, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        with self._session() as session:
            return looking.find(session, self._statements, tenant, job_id)

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        with self._session() as session:
            looking.retry(session, self._statements, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        with self._session() as session:
            return looking.forget(session, self._statements, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        with self._session() as session:
            return looking.prune(session, self._statements, older_than_us)

    def clear(self, queue: str) -> int:
        with self._session() as session:
            return looking.clear(session, self._statements, queue)

    def pause(self, queue: str) -> None:
        with self._session() as session:
            session.ask(self._statements[PAUSE] % {"queue": text(queue)}, commits=True)

    def resume(self, queue: str) -> None:
        with self._session() as session:
            session.ask(self._statements[RESUME] % {"queue": text(queue)}, commits=True)

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        with self._session() as session:
            return coordinating.lock(session, self._statements, key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        with self._session() as session:
            return coordinating.unlock(session, self._statements, key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        with self._session() as session:
            return coordinating.increment(session, self._statements, key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        with self._session() as session:
            return coordinating.read_flag(session, self._statements, key)

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        with self._session() as session:
            coordinating.write_flag(session, self._statements, key, value, ttl_us)

    def erase_flag(self, key: str) -> None:
        with self._session() as session:
            coordinating.erase_flag(session, self._statements, key)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        ready, thorough = (self._any_of(condition, queues) for condition in (IS_READY, MAY_BE_DUE))
        with self._session() as session:
            return self._waker.wait(queues, timeout_s, Looker(session, ready, thorough))

    def _any_of(self, condition: str, queues: Sequence[str]) -> str:
        parts = [f"({self._statements[condition] % {'queue': text(queue)}})" for queue in queues]
        return self._statements[ASK_IF] % {"condition": " or ".join(parts)}

    def migrations(self) -> list[Migration]:
        return schema.migrations(self._settings.prefix)

    def migrate(self) -> list[int]:
        with self._pool.session() as session:
            return schema.migrate(session, self._settings, self._statements)

    def schema_version(self) -> int:
        with self._pool.session() as session:
            return schema.version(session, self._statements)

    def now(self) -> int:
        with self._pool.session() as session:
            return int(session.ask(self._statements[CLOCK])[0].rows[0][0])

    def ping(self) -> str:
        with self._pool.session() as session:
            found = str(session.ask(self._statements[VERSION])[0].rows[0][0])
        return f"{'MariaDB' if 'mariadb' in found.lower() else 'MySQL'} {found.partition('-')[0]}"

    def close(self) -> None:
        self._registry.close()
        self._pool.close()
