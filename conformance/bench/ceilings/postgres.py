"""The plain script on PostgreSQL: prepared inserts, COPY, and the claim of 50 in the same round trip as the deletes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import urandom

import psycopg

from hesape.config import ConnectionSettings
from hesape_conformance.bench.ceiling import decode, encode

TABLE = """
CREATE TABLE ceiling_jobs (
    id uuid PRIMARY KEY, envelope bytea NOT NULL, tenant text NOT NULL, name text NOT NULL, queue text NOT NULL,
    priority int2 NOT NULL, due bigint NOT NULL DEFAULT extract(epoch FROM clock_timestamp()) * 1000000,
    seq bigint GENERATED ALWAYS AS IDENTITY, state int2 NOT NULL DEFAULT 0, attempts int4 NOT NULL DEFAULT 0,
    token uuid, reserved_until bigint)
"""
READY = "CREATE INDEX ceiling_ready ON ceiling_jobs (queue, priority, due, seq) WHERE state = 0"
INSERT = """
INSERT INTO ceiling_jobs (id, envelope, tenant, name, queue, priority) VALUES (%s, %b, %s, %s, %s, %s)
"""
COPY = "COPY ceiling_jobs (id, envelope, tenant, name, queue, priority) FROM STDIN (FORMAT BINARY)"
COPIED = ("bytea", "bytea", "text", "text", "text", "int2")
"""Bytes for the uuid, too: sixteen of them are its binary form, and cheaper to make than a `UUID`."""
ACKNOWLEDGE_AND_CLAIM = """
WITH done AS (DELETE FROM ceiling_jobs WHERE id = ANY(%s::uuid[]) RETURNING 1),
     wanted AS MATERIALIZED (
        SELECT id FROM ceiling_jobs WHERE queue = 'default' AND state = 0 AND (SELECT count(*) FROM done) >= 0
         ORDER BY priority, due, seq LIMIT 50 FOR UPDATE SKIP LOCKED)
UPDATE ceiling_jobs j SET state = 1, attempts = attempts + 1, token = %s,
       reserved_until = extract(epoch FROM clock_timestamp()) * 1000000 + 60000000
  FROM wanted WHERE j.id = wanted.id
RETURNING j.id, j.envelope, j.tenant, j.name, j.queue, j.priority, j.due, j.attempts
"""


class Ceiling:
    """One autocommit connection with the server's durable defaults."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Connect to the driver's database."""
        self._connection = psycopg.connect(settings.url, autocommit=True, prepare_threshold=0)
        self._connection.execute("SET plan_cache_mode = force_generic_plan")
        self._connection.execute("SET enable_seqscan = off")

    def prepare(self) -> None:
        """An empty table."""
        self._connection.execute("DROP TABLE IF EXISTS ceiling_jobs")
        self._connection.execute(TABLE)
        self._connection.execute(READY)

    def push(self, payloads: Sequence[object]) -> None:
        """One prepared insert and commit each."""
        cursor = self._connection.cursor()
        for payload in payloads:
            cursor.execute(INSERT, (*encode(payload), "acme", "bench.noop", "default", 100))

    def bulk(self, payloads: Sequence[object]) -> None:
        """COPY a thousand at a time, in binary."""
        cursor = self._connection.cursor()
        for at in range(0, len(payloads), 1000):
            with cursor.copy(COPY) as copy:
                copy.set_types(COPIED)
                for payload in payloads[at : at + 1000]:
                    job_id, envelope = encode(payload)
                    key = bytes.fromhex(job_id.replace("-", ""))
                    copy.write_row((key, envelope, "acme", "bench.noop", "default", 100))

    def drain(self) -> int:
        """Claim, decode, and delete with the next claim: one round trip and one commit for 50 jobs."""
        cursor = self._connection.cursor(binary=True)
        done: list[object] = []
        drained = 0
        while True:
            rows = cursor.execute(ACKNOWLEDGE_AND_CLAIM, (done, urandom(16).hex())).fetchall()
            drained += len(done)
            if not rows:
                return drained
            for row in rows:
                decode(row[1])
            done = [row[0] for row in rows]

    def close(self) -> None:
        """Drop the table."""
        self._connection.execute("DROP TABLE IF EXISTS ceiling_jobs")
        self._connection.close()


SYNCS = ("fsync", "synchronous_commit", "full_page_writes")
COLUMNS = """
SELECT column_name FROM information_schema.columns
 WHERE table_schema = %s AND table_name = 'hesape_jobs' AND is_identity = 'NO'
"""


def durability(settings: ConnectionSettings) -> str:
    """What a commit waits for, on the server that both use."""
    with psycopg.connect(settings.url) as conn:
        found = conn.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", (list(SYNCS),)).fetchall()
    return ", ".join(f"{name} {setting}" for name, setting in found)


def copies(settings: ConnectionSettings, n: int) -> None:
    """Copy the one job, then tidy up as autovacuum would later."""
    schema = settings.options["schema"]
    with psycopg.connect(settings.url, autocommit=True) as conn:
        columns = [row[0] for row in conn.execute(COLUMNS, (schema,))]
        values = ["gen_random_uuid()" if column == "id" else column for column in columns]
        conn.execute(
            f"INSERT INTO {schema}.hesape_jobs ({', '.join(columns)})"
            f" SELECT {', '.join(values)} FROM {schema}.hesape_jobs, generate_series(1, {n})"
        )
        conn.execute(f"VACUUM ANALYZE {schema}.hesape_jobs")


@contextmanager
def snapshot(settings: ConnectionSettings) -> Iterator[None]:
    """Hold a snapshot, as a backup or a report does: nothing that is deleted meanwhile can be vacuumed."""
    with psycopg.connect(settings.url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT txid_current()")
        yield
        conn.rollback()
