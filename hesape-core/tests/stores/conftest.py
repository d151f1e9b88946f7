"""The two embedded stores, each under a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hesape.attributes import Attributes
from hesape.driver import Driver
from hesape.drivers.memory.driver import MemoryDriver
from hesape.drivers.sqlite.driver import SqliteDriver
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape.envelope import NO_KEYS, Content, Keys, encode
from hesape.jobs import new_id
from hesape.records import Claim, Claimed, Counts, Key, NewRow, Unique, new_token

SECOND = 1_000_000


class Bench:
    """A driver, its clock, and short ways to ask it."""

    def __init__(self, driver: MemoryDriver | SqliteDriver) -> None:
        self.driver: Driver = driver
        self.now_us = 1_700_000_000 * SECOND
        driver.clock = lambda: self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * SECOND)

    @staticmethod
    def row(
        *,
        id: str = "",  # noqa: A002 - it is the job's id
        queue: str = "default",
        priority: int = 100,
        run_at_us: int | None = None,
        delay_s: float = 0,
        tenant: str = "acme",
        payload: bytes = b"{}",
        unique: Unique | None = None,
        keys: Keys = NO_KEYS,
    ) -> NewRow:
        job_id = id or new_id()
        content = Content(job_id, tenant, "act", "author", "name", "", queue, Attributes(), payload)
        delay_us = round(delay_s * SECOND)
        return NewRow(job_id, encode(content, keys), tenant, "name", queue, priority, run_at_us, delay_us, unique)

    def store(self, *rows: NewRow) -> list[str]:
        self.driver._store(rows, None)
        return [row.id for row in rows]

    def push(self, **fields: object) -> str:
        return self.store(self.row(**fields))[0]  # type: ignore[arg-type]

    def claim(
        self,
        n: int = 10,
        *,
        queues: Sequence[str] = ("default",),
        lease_s: float = 60,
        token: bytes = b"",
        worker: str = "",
        done: Sequence[Key] = (),
        repeat: bool = False,
    ) -> Claimed:
        lease_us = round(lease_s * SECOND)
        return self.driver.reserve(Claim(tuple(queues), n, lease_us, token or new_token(), worker, tuple(done), repeat))

    def ids(self, n: int = 10, **how: object) -> list[str]:
        return [row.id for row in self.claim(n, **how).rows]  # type: ignore[arg-type]

    def take(self, n: int = 1, **how: object) -> list[Key]:
        """Claim, and return the deliveries."""
        token = new_token()
        return [Key(job_id, token) for job_id in self.ids(n, token=token, **how)]

    def release(self, key: Key, *, delay_s: float = 0, spent: bool = True) -> bool:
        return self.driver._release(
            key, delay_us=round(delay_s * SECOND), spent=spent, error="released", exceptions=1, tx=None
        )

    def fail(self, key: Key, error: str | None = "failed") -> bool:
        return self.driver._fail(key, error=error, exceptions=1, tx=None)

    def push_failed(self, **fields: object) -> str:
        """Push a job, deliver it and park it."""
        job_id = self.push(priority=-32768, **fields)
        (key,) = self.take(queues=(str(fields.get("queue", "default")),))
        assert key.id == job_id
        assert self.fail(key)
        return job_id

    def counts(self, queue: str = "default") -> tuple[int, int, int, int]:
        found: Counts = self.driver.counts(queue)
        return found.pending, found.delayed, found.reserved, found.failed


@pytest.fixture(params=["memory", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Both stores, one after the other."""
    driver = MemoryDriver() if request.param == "memory" else SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db"))
    yield Bench(driver)
    driver.close()


@pytest.fixture
def sqlite_bench(tmp_path: Path) -> Iterator[Bench]:
    """The sqlite store alone."""
    driver = SqliteDriver(SqliteSettings(path=tmp_path / "jobs.db"))
    yield Bench(driver)
    driver.close()
