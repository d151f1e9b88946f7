"""The Redis driver: every operation is one script, which the server runs as one step."""
# ruff: noqa: D102 - the contract, hesape.driver, says what each method does

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.errors import StoreError
from hesape.records import Claim, Claimed, Counts, Finding, Key, Migration, NewRow, Row, WorkerRow
from hesape_redis import coordinate, deliver, keys, look, server
from hesape_redis.link import Link
from hesape_redis.plugin import SPEC
from hesape_redis.scripts import ALL
from hesape_redis.settings import Settings
from hesape_redis.sources import source
from hesape_redis.wake import Waiting

logger = logging.getLogger(__name__)


def open_driver(settings: ConnectionSettings) -> RedisDriver:
    """Open the driver that a connection's settings describe; connects at first use."""
    return RedisDriver(settings)


class RedisDriver(Driver):
    """Jobs in Redis 7 or later, or Valkey."""

    spec: ClassVar[DriverSpec] = SPEC

    def __init__(self, settings: ConnectionSettings) -> None:
        """Read the settings; `ConfigError` for what isn't understood."""
        read = Settings.read(settings)
        self.base = keys.base(read.prefix)
        self._link = Link(source(read, self.base), settings, self.base)
        self._waiting = Waiting(self._link, settings, self.base)
        self._warned = False

    @classmethod
    def of_client(cls, client: Any, *, prefix: str = keys.DEFAULT_PREFIX, name: str = "redis") -> Self:
        """Use a `redis.Redis` or `redis.RedisCluster` that exists already, whether it decodes what it reads or not."""
        return cls(ConnectionSettings(name=name, driver="redis", options={"client": client, "prefix": prefix}))

    # Deliver.

    def _store(self, rows: Sequence[NewRow], tx: object) -> None:
        deliver.store_rows(self._link, rows)

    def reserve(self, claim: Claim) -> Claimed:
        return deliver.reserve(self._link, claim)

    def _delete(self, keys: Sequence[Key], *, repeat: bool, tx: object) -> list[Key]:
        return deliver.delete(self._link, keys, repeat=repeat)

    def _release(self, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int, tx: object) -> bool:
        return deliver.release(self._link, key, delay_us=delay_us, spent=spent, error=error, exceptions=exceptions)

    def _fail(self, key: Key, *, error: str | None, exceptions: int, tx: object) -> bool:
        return deliver.fail(self._link, key, error=error, exceptions=exceptions)

    def _extend(self, keys: Sequence[Key], lease_us: int) -> list[int | None]:
        return deliver.extend(self._link, keys, lease_us)

    def _hand_back(self, keys: Sequence[Key]) -> None:
        deliver.hand_back(self._link, keys)

    def beat(self, worker: str, ttl_us: int, lease_us: int, but: Sequence[str] = ()) -> frozenset[str]:
        paused = deliver.beat(self._link, worker, ttl_us, lease_us, but)
        self._warn()
        return paused

    def retire(self, worker: str) -> int:
        return int(self._link.run(ALL["retire"], worker))

    def rescue(self) -> int:
        return int(self._link.run(ALL["rescue"]))

    def workers(self) -> list[WorkerRow]:
        return deliver.workers(self._link)

    # Look and repair.

    def counts(self, queue: str) -> Counts:
        return look.counts(self._link, queue)

    def queues(self) -> list[str]:
        return look.queues(self._link)

    def oldest_pending(self, queue: str) -> int | None:
        return look.oldest_pending(self._link, queue)

    def failed(self, tenant: str | None, *, queue: str | None, limit: int, before: tuple[int, str] | None) -> list[Row]:
        return look.failed(self._link, tenant, queue=queue, limit=limit, before=before)

    def find(self, tenant: str | None, job_id: str) -> Row:
        return look.find(self._link, tenant, job_id)

    def retry(self, tenant: str | None, ids: Sequence[str]) -> None:
        look.retry(self._link, tenant, ids)

    def forget(self, tenant: str | None, ids: Sequence[str]) -> int:
        return look.forget(self._link, tenant, ids)

    def prune(self, older_than_us: int | None) -> int:
        return look.prune(self._link, older_than_us)

    def clear(self, queue: str) -> int:
        return int(self._link.run(ALL["clear"], queue))

    def pause(self, queue: str) -> None:
        self._link.run(ALL["pause"], queue)

    def resume(self, queue: str) -> None:
        self._link.run(ALL["resume"], queue)

    # Coordinate.

    def lock(self, key: str, owner: str, ttl_us: int) -> bool:
        return coordinate.lock(self._link, key, owner, ttl_us)

    def unlock(self, key: str, owner: str) -> bool:
        return coordinate.unlock(self._link, key, owner)

    def increment(self, key: str, by: int, ttl_us: int) -> tuple[int, int]:
        return coordinate.increment(self._link, key, by, ttl_us)

    def read_flag(self, key: str) -> str | None:
        return coordinate.read_flag(self._link, key)

    def write_flag(self, key: str, value: str, ttl_us: int | None) -> None:
        coordinate.write_flag(self._link, key, value, ttl_us)

    def erase_flag(self, key: str) -> None:
        self._link.run(ALL["erase_flag"], key)

    # Around.

    def wait(self, queues: Sequence[str], timeout_s: float) -> bool:
        return self._waiting.wait(queues, timeout_s)

    def migrations(self) -> list[Migration]:
        return []

    def migrate(self) -> list[int]:
        return []

    def schema_version(self) -> int:
        return 0

    def now(self) -> int:
        seconds, microseconds = self._link.ask("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    def ping(self) -> str:
        found = server.product(self._link)
        self._warn()
        return found

    def close(self) -> None:
        self._waiting.close()
        self._link.close()

    def checkup(self) -> list[Finding]:
        return [server.persistence(self._link), server.eviction(self._link)]

    def _warn(self) -> None:
        """Say once when the server may drop jobs."""
        if self._warned:
            return
        self._warned = True
        try:
            fine, text = server.eviction(self._link)
        except StoreError:
            self._warned = False  # nobody could look: the next beat does
            return
        if not fine:
            logger.warning("%s", text)
