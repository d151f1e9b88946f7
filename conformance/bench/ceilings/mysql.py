"""The plain script on MySQL and MariaDB: multi-row inserts, and claims of 50 with the deletes in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from os import urandom
from typing import Any
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT

from hesape.config import ConnectionSettings
from hesape_conformance.bench.ceiling import decode, encode

TABLE = """
CREATE TABLE ceiling_jobs (
    id BINARY(16) PRIMARY KEY, envelope MEDIUMBLOB NOT NULL, tenant VARCHAR(64) NOT NULL, name VARCHAR(255) NOT NULL,
    queue VARCHAR(128) NOT NULL, priority SMALLINT NOT NULL, due BIGINT NOT NULL, seq BIGINT NOT NULL AUTO_INCREMENT,
    state TINYINT NOT NULL DEFAULT 0, attempts INT NOT NULL DEFAULT 0, token BINARY(16), reserved_until BIGINT,
    UNIQUE KEY (seq), KEY ready (queue, state, priority, due, seq)) ENGINE=InnoDB CHARSET=utf8mb4 COLLATE=utf8mb4_bin
"""
NOW = "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"
INSERT = "INSERT INTO ceiling_jobs (id, envelope, tenant, name, queue, priority, due) VALUES "
ROW = f"(%s, %s, %s, %s, %s, %s, {NOW})"
CLAIM = """
SELECT id, envelope, CONCAT_WS(' ', tenant, name, queue, priority, due, attempts) FROM ceiling_jobs
 WHERE queue = 'default' AND state = 0 ORDER BY priority, due, seq LIMIT 50 FOR UPDATE SKIP LOCKED
"""
RESERVE = f"UPDATE ceiling_jobs SET state = 1, attempts = attempts + 1, token = %s, reserved_until = {NOW} + 60000000"


def connect(settings: ConnectionSettings) -> Any:
    """A connection to the driver's database."""
    url = urlsplit(settings.url)
    return pymysql.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=url.username,
        password=url.password or "",
        database=url.path.lstrip("/"),
        charset="utf8mb4",
        autocommit=True,
        client_flag=CLIENT.MULTI_STATEMENTS,
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


class Ceiling:
    """One connection, READ COMMITTED, with the server's durable defaults."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Connect to the driver's database."""
        self._connection = connect(settings)
        self._cursor = self._connection.cursor()

    def prepare(self) -> None:
        """An empty table."""
        self._cursor.execute("DROP TABLE IF EXISTS ceiling_jobs")
        self._cursor.execute(TABLE)

    def push(self, payloads: Sequence[object]) -> None:
        """One autocommit insert each."""
        for payload in payloads:
            self._cursor.execute(INSERT + ROW, self._row(payload))

    def bulk(self, payloads: Sequence[object]) -> None:
        """One transaction a thousand, a hundred rows a statement."""
        for at in range(0, len(payloads), 1000):
            self._connection.begin()
            for part in range(at, min(at + 1000, len(payloads)), 100):
                rows = [self._row(payload) for payload in payloads[part : part + 100]]
                values = [value for row in rows for value in row]
                self._cursor.execute(INSERT + ",".join([ROW] * len(rows)), values)
            self._connection.commit()

    def drain(self) -> int:
        """Delete the last batch and select the next in one round trip, reserve it and commit in another."""
        done: list[bytes] = []
        drained = 0
        while True:
            delete = f"DELETE FROM ceiling_jobs WHERE id IN ({_marks(done)});" if done else ""
            self._cursor.execute("BEGIN;" + delete + CLAIM, done)
            while self._cursor.description is None:
                self._cursor.nextset()
            rows = self._cursor.fetchall()
            drained += len(done)
            if not rows:
                self._connection.commit()
                return drained
            done = [row[0] for row in rows]
            self._cursor.execute(f"{RESERVE} WHERE id IN ({_marks(done)}); COMMIT", [urandom(16), *done])
            while self._cursor.nextset():
                pass
            for row in rows:
                decode(row[1])

    def close(self) -> None:
        """Drop the table."""
        self._cursor.execute("DROP TABLE IF EXISTS ceiling_jobs")
        self._connection.close()

    def _row(self, payload: object) -> tuple[object, ...]:
        job_id, envelope = encode(payload)
        return bytes.fromhex(job_id.replace("-", "")), envelope, "acme", "bench.noop", "default", 100


def _marks(values: Sequence[object]) -> str:
    return ",".join(["%s"] * len(values))


SYNCS = ("innodb_flush_log_at_trx_commit", "innodb_doublewrite", "log_bin", "sync_binlog")
COLUMNS = """
SELECT column_name FROM information_schema.columns
 WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position
"""
NUMBERS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)"
STEP = 100_000
"""Jobs a transaction: what an undo log takes easily."""


def durability(settings: ConnectionSettings) -> str:
    """What a commit waits for, on the server that both use."""
    with closing(connect(settings)) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW VARIABLES WHERE variable_name IN ({_marks(SYNCS)})", SYNCS)
        return ", ".join(f"{name} {value}" for name, value in cursor.fetchall())


def copies(settings: ConnectionSettings, n: int) -> None:
    """Copy the one job, then let the server count."""
    table = f"{settings.options['prefix']}jobs"
    with closing(connect(settings)) as connection, connection.cursor() as cursor:
        cursor.execute(COLUMNS, (table,))
        columns = [row[0] for row in cursor.fetchall()]
        cursor.execute(f"CREATE TEMPORARY TABLE model SELECT * FROM {table}")
        cursor.execute(f"CREATE TEMPORARY TABLE thousand {NUMBERS} SELECT n FROM numbers")
        cursor.execute("CREATE TEMPORARY TABLE again SELECT n FROM thousand")
        for at in range(0, n, STEP):
            number = f"{at} + (again.n - 1) * 1000 + thousand.n"
            values = [f"UNHEX(LPAD(HEX({number}), 32, '0'))" if column == "id" else column for column in columns]
            cursor.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)}"
                f" FROM model, again, thousand WHERE again.n <= {STEP // 1000} AND {number} <= {n}"
            )
        cursor.execute(f"ANALYZE TABLE {table}")
