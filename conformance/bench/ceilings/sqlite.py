"""The plain script on SQLite: one autocommit claim of 50 by UPDATE ... RETURNING, one DELETE ... IN, executemany."""

from __future__ import annotations

import sqlite3
import struct
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from os import urandom
from pathlib import Path

from hesape.config import ConnectionSettings
from hesape.drivers.sqlite.settings import SqliteSettings
from hesape_conformance.bench.ceiling import decode, encode

TABLE = """
CREATE TABLE ceiling_jobs (
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, envelope BLOB NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL,
    queue TEXT NOT NULL, priority INTEGER NOT NULL, due INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0,
    attempts INTEGER NOT NULL DEFAULT 0, token BLOB, reserved_until INTEGER)
"""
READY = "CREATE INDEX ceiling_ready ON ceiling_jobs (queue, priority, due, seq) WHERE state = 0"
INSERT = "INSERT INTO ceiling_jobs (id, envelope, tenant, name, queue, priority, due) VALUES (?, ?, ?, ?, ?, ?, ?)"
CLAIM = """
UPDATE ceiling_jobs SET state = 1, attempts = attempts + 1, token = ?, reserved_until = ?
 WHERE seq IN (SELECT seq FROM ceiling_jobs WHERE queue = 'default' AND state = 0 ORDER BY priority, due, seq LIMIT 50)
RETURNING seq, id, envelope, tenant, name, queue, priority, due, attempts
"""


class Ceiling:
    """WAL with synchronous=FULL, as the driver has it."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Open a file of its own beside the driver's."""
        self._path = settings.folder / "ceiling.db"
        self._connection = sqlite3.connect(self._path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")

    def prepare(self) -> None:
        """An empty table."""
        self._connection.execute("DROP TABLE IF EXISTS ceiling_jobs")
        self._connection.execute(TABLE)
        self._connection.execute(READY)

    def push(self, payloads: Sequence[object]) -> None:
        """One autocommit insert each."""
        for payload in payloads:
            self._connection.execute(INSERT, self._row(payload))

    def bulk(self, payloads: Sequence[object]) -> None:
        """One transaction a thousand."""
        for at in range(0, len(payloads), 1000):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, [self._row(payload) for payload in payloads[at : at + 1000]])
            self._connection.execute("COMMIT")

    def drain(self) -> int:
        """Claim, decode, delete by row."""
        done = 0
        while rows := self._connection.execute(CLAIM, (urandom(16), time.time_ns() // 1000 + 60_000_000)).fetchall():
            for row in rows:
                decode(row[2])
            marks = ",".join("?" * len(rows))
            self._connection.execute(f"DELETE FROM ceiling_jobs WHERE seq IN ({marks})", [row[0] for row in rows])
            done += len(rows)
        return done

    def close(self) -> None:
        """Remove the file."""
        self._connection.close()
        for path in self._path.parent.glob("ceiling.db*"):
            path.unlink()

    def _row(self, payload: object) -> tuple[object, ...]:
        job_id, envelope = encode(payload)
        key = bytes.fromhex(job_id.replace("-", ""))
        return key, envelope, "acme", "bench.noop", "default", 100, time.time_ns() // 1000


COPIES = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO hesape_jobs ({columns}) SELECT {values} FROM hesape_jobs, numbers
"""


def durability(settings: ConnectionSettings) -> str:
    """What a commit waits for; the script sets the same."""
    given = SqliteSettings.read(settings)
    with closing(sqlite3.connect(given.path)) as connection:
        journal = connection.execute("PRAGMA journal_mode").fetchone()[0]
    return f"journal_mode {journal}, synchronous {given.synchronous}"


def copies(settings: ConnectionSettings, n: int) -> None:
    """Copy the one job, in one transaction."""
    with closing(sqlite3.connect(SqliteSettings.read(settings).path)) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(hesape_jobs)") if row[1] != "seq"]
        values = ["randomblob(16)" if column == "id" else column for column in columns]
        connection.execute(COPIES.format(columns=", ".join(columns), values=", ".join(values)), (n,))


def writes(settings: ConnectionSettings) -> int:
    """How many transactions wrote, by the counter in the index of each write-ahead log of the folder."""
    return sum(_counter(path) for path in settings.folder.glob("*-shm"))


def _counter(path: Path) -> int:
    # In another process: whoever closes a file loses all locks that its process holds on it, SQLite's own, too
    header = subprocess.run(["head", "-c", "12", path], capture_output=True, check=True).stdout
    return int(struct.unpack("=3I", header)[2]) if len(header) == 12 else 0
