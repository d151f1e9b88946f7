"""Every statement, by what it does. `hesape_` stands for the configured prefix.

A state is written into the text, never a parameter: only then does SQLite use the partial index of that state. INDEXED
BY makes it an error not to use it, whatever statistics say, so that a claim stays bounded (L7, O2).
"""

from __future__ import annotations

from typing import Final

COLUMNS: Final = (
    "seq, id, envelope, tenant, name, queue, priority, due_us, attempts, lapses, exceptions, last_error, until_us, "
    "pushed_us, retried_us, failed_us"
)
_MOST: Final = 2**31 - 2
"""One more is a number, whatever somebody forged: a sum that overflows would stop every claim."""
_FREE: Final = "token = NULL, worker = '', claimed_us = NULL, until_us = NULL"
_CURRENT: Final = "id = ? AND token = ? AND state = 2 AND until_us > ?"
"""A delivery that may still settle: reserved, under its token, before its end (L4)."""
_LAST: Final = "seq = (SELECT max(seq) + 1 FROM hesape_jobs)"
"""Behind all that is stored, should the due time be equal (O1)."""

# Storing.

INSERT_JOB: Final = """
INSERT INTO hesape_jobs (id, state, queue, priority, due_us, tenant, name, pushed_us, envelope)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_JOB_ONCE: Final = f"{INSERT_JOB} ON CONFLICT (id) DO NOTHING"
STORED: Final = "SELECT tenant = ?, envelope FROM hesape_jobs WHERE id = ?"
HOLD_KEY: Final = """
INSERT INTO hesape_entries (key, value, end_us) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, end_us = excluded.end_us WHERE hesape_entries.end_us <= ?
"""

# Claiming.

LOOK: Final = """
SELECT EXISTS (SELECT 1 FROM hesape_jobs INDEXED BY hesape_ready WHERE state = 0 AND queue = ?),
    (SELECT min(due_us) FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = ?),
    (SELECT min(until_us) FROM hesape_jobs INDEXED BY hesape_reserved WHERE state = 2 AND queue = ?)
"""
PAUSED: Final = "SELECT queue FROM hesape_paused"
CLAIMED: Final = f"""
SELECT {COLUMNS} FROM hesape_jobs INDEXED BY hesape_held WHERE state = 2 AND worker = ? AND token = ?
"""
PROMOTE_DUE: Final = """
UPDATE hesape_jobs SET state = 0 WHERE seq IN (
    SELECT seq FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = ? AND due_us <= ?
    ORDER BY due_us LIMIT ?)
"""
PROMOTE_LAPSED: Final = f"""
UPDATE hesape_jobs SET state = 0, lapses = min(lapses, {_MOST}) + 1, {_FREE} WHERE seq IN (
    SELECT seq FROM hesape_jobs INDEXED BY hesape_reserved WHERE state = 2 AND queue = ? AND until_us <= ?
    ORDER BY until_us LIMIT ?)
"""
# A queue that is paused between the look and this statement gives nothing (L9).
CLAIM: Final = f"""
UPDATE hesape_jobs SET state = 2, attempts = min(attempts, {_MOST}) + 1, token = ?, worker = ?, claimed_us = ?,
    until_us = ?
WHERE seq IN (
    SELECT seq FROM hesape_jobs INDEXED BY hesape_ready
    WHERE state = 0 AND queue = ? AND NOT EXISTS (SELECT 1 FROM hesape_paused WHERE queue = ?)
    ORDER BY priority, due_us, seq LIMIT ?)
RETURNING {COLUMNS}
"""

# Settling.

DELETE: Final = f"DELETE FROM hesape_jobs WHERE {_CURRENT}"
EXISTS: Final = "SELECT 1 FROM hesape_jobs WHERE id = ?"
RELEASE: Final = f"""
UPDATE hesape_jobs SET {_LAST}, state = ?, due_us = ?, attempts = attempts - ?, lapses = 0, last_error = ?,
    exceptions = ?, worker = '', claimed_us = NULL, until_us = NULL
WHERE {_CURRENT}
"""
RELEASED: Final = "SELECT 1 FROM hesape_jobs WHERE id = ? AND token = ? AND state IN (0, 1)"
FAIL: Final = f"""
UPDATE hesape_jobs SET state = 3, failed_us = ?, lapses = 0, last_error = ?, exceptions = ?, worker = '',
    claimed_us = NULL, until_us = NULL
WHERE {_CURRENT}
"""
FAILED_UNDER: Final = "SELECT 1 FROM hesape_jobs WHERE id = ? AND token = ? AND state = 3"
EXTEND: Final = f"UPDATE hesape_jobs SET until_us = max(until_us, ?) WHERE {_CURRENT} RETURNING until_us"
DEADLINE: Final = f"SELECT until_us FROM hesape_jobs WHERE {_CURRENT}"
HAND_BACK: Final = f"UPDATE hesape_jobs SET state = 0, attempts = attempts - 1, {_FREE} WHERE {_CURRENT}"

# Workers.

BEAT: Final = """
INSERT INTO hesape_workers (worker, beat_us, end_us) VALUES (?, ?, ?)
ON CONFLICT (worker) DO UPDATE SET beat_us = excluded.beat_us, end_us = excluded.end_us
"""
RENEW: Final = """
UPDATE hesape_jobs INDEXED BY hesape_held SET until_us = ?
WHERE state = 2 AND worker = ? AND until_us > ? AND until_us < ?
"""
FORGET_WORKER: Final = "DELETE FROM hesape_workers WHERE worker = ?"
FREE_HELD: Final = f"""
UPDATE hesape_jobs INDEXED BY hesape_held SET state = 0, lapses = min(lapses, {_MOST}) + 1, {_FREE}
WHERE state = 2 AND worker = ?
"""
BEATS: Final = "SELECT worker, end_us FROM hesape_workers"
WORKERS: Final = """
SELECT worker, beat_us,
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_held WHERE state = 2 AND worker = w.worker),
    (SELECT min(claimed_us) FROM hesape_jobs INDEXED BY hesape_held WHERE state = 2 AND worker = w.worker)
FROM hesape_workers AS w ORDER BY worker
"""
ENDED: Final = "SELECT EXISTS (SELECT 1 FROM hesape_entries INDEXED BY hesape_ends WHERE end_us <= ?)"
FORGET_ENDED: Final = "DELETE FROM hesape_entries INDEXED BY hesape_ends WHERE end_us <= ?"

# Looking.

COUNTS: Final = """
SELECT
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_ready WHERE state = 0 AND queue = :of),
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = :of AND due_us <= :now),
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = :of AND due_us > :now),
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_reserved WHERE state = 2 AND queue = :of AND until_us <= :now),
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_reserved WHERE state = 2 AND queue = :of AND until_us > :now),
    (SELECT count(*) FROM hesape_jobs INDEXED BY hesape_failed_queue WHERE state = 3 AND queue = :of)
"""
# From priority to priority: the first of each is its oldest, so that a long queue isn't read.
OLDEST: Final = """
WITH RECURSIVE steps (priority, due_us) AS (
    SELECT * FROM (SELECT priority, due_us FROM hesape_jobs INDEXED BY hesape_ready
        WHERE state = 0 AND queue = :of ORDER BY priority, due_us LIMIT 1)
    UNION ALL
    SELECT (SELECT priority FROM hesape_jobs INDEXED BY hesape_ready
            WHERE state = 0 AND queue = :of AND priority > steps.priority ORDER BY priority, due_us LIMIT 1),
        (SELECT due_us FROM hesape_jobs INDEXED BY hesape_ready
            WHERE state = 0 AND queue = :of AND priority > steps.priority ORDER BY priority, due_us LIMIT 1)
    FROM steps WHERE priority IS NOT NULL)
SELECT min(due_us) FROM (
    SELECT due_us FROM steps
    UNION ALL
    SELECT min(due_us) FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = :of AND due_us <= :now
    UNION ALL
    SELECT min(due_us) FROM hesape_jobs INDEXED BY hesape_reserved
        WHERE state = 2 AND queue = :of AND until_us <= :now)
"""
# From name to name through each state's index: a long queue isn't read.
_NAMES: Final = """
SELECT queue FROM (
    WITH RECURSIVE names (queue) AS (
        SELECT min(queue) FROM hesape_jobs INDEXED BY {index} WHERE state = {state}
        UNION ALL
        SELECT (SELECT min(queue) FROM hesape_jobs INDEXED BY {index} WHERE state = {state} AND queue > names.queue)
        FROM names WHERE queue IS NOT NULL)
    SELECT queue FROM names WHERE queue IS NOT NULL)
"""
QUEUES: Final = "\nUNION\n".join(
    (
        _NAMES.format(index="hesape_ready", state=0),
        _NAMES.format(index="hesape_scheduled", state=1),
        _NAMES.format(index="hesape_reserved", state=2),
        _NAMES.format(index="hesape_failed_queue", state=3),
        "SELECT queue FROM hesape_paused ORDER BY 1",
    )
)
STATE: Final = "SELECT state FROM hesape_jobs WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant)"
FIND: Final = f"SELECT {COLUMNS} FROM hesape_jobs WHERE id = :id AND (:tenant IS NULL OR tenant = :tenant)"

# Repairing.

RETRY: Final = f"""
UPDATE hesape_jobs SET {_LAST}, state = 0, due_us = :now_us, retried_us = :now_us, failed_us = NULL, token = NULL,
    attempts = 0, exceptions = 0, lapses = 0, last_error = NULL
WHERE id = :id
"""
FORGET: Final = "DELETE FROM hesape_jobs WHERE id = ?"
PRUNE: Final = "DELETE FROM hesape_jobs INDEXED BY hesape_failed WHERE state = 3 AND failed_us < ?"
FLUSH: Final = "DELETE FROM hesape_jobs INDEXED BY hesape_failed WHERE state = 3"
CLEAR: Final = (
    "DELETE FROM hesape_jobs INDEXED BY hesape_ready WHERE state = 0 AND queue = ?",
    "DELETE FROM hesape_jobs INDEXED BY hesape_scheduled WHERE state = 1 AND queue = ?",
    "DELETE FROM hesape_jobs INDEXED BY hesape_reserved WHERE state = 2 AND queue = ?",
)
PAUSE: Final = "INSERT INTO hesape_paused (queue) VALUES (?) ON CONFLICT (queue) DO NOTHING"
RESUME: Final = "DELETE FROM hesape_paused WHERE queue = ?"

# Coordinating (K1).

LOCK: Final = """
INSERT INTO hesape_entries (key, value, end_us) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, end_us = excluded.end_us
WHERE hesape_entries.end_us <= ? OR hesape_entries.value = excluded.value
"""
UNLOCK: Final = "DELETE FROM hesape_entries WHERE key = ? AND value = ? AND end_us > ?"
INCREMENT: Final = """
INSERT INTO hesape_entries (key, value, end_us) VALUES (:key, :by, :end_us)
ON CONFLICT (key) DO UPDATE SET
    value = CASE WHEN end_us <= :now_us THEN :by ELSE CAST(CAST(value AS INTEGER) + :by AS TEXT) END,
    end_us = CASE WHEN end_us <= :now_us THEN :end_us ELSE end_us END
RETURNING CAST(value AS INTEGER), end_us
"""
ENTRY: Final = "SELECT value, end_us FROM hesape_entries WHERE key = ? AND (end_us IS NULL OR end_us > ?)"
SET_FLAG: Final = "INSERT OR REPLACE INTO hesape_entries (key, value, end_us) VALUES (?, ?, ?)"
ERASE_FLAG: Final = "DELETE FROM hesape_entries WHERE key = ?"

# A lent connection. The first one begins the module's implicit transaction and takes the write lock before anything
# was read, and it fails on another store: its key is taken (X1).

JOIN: Final = """
INSERT INTO hesape_meta (key, value)
SELECT 'store', :store WHERE NOT EXISTS (SELECT 1 FROM hesape_meta WHERE key = 'store' AND value = :store)
"""


def failed_page(*, tenant: bool, queue: bool, after: bool) -> str:
    """A page of the failed list: parameters are the tenant, the queue, the cursor's time and id, the limit (F1)."""
    index = "hesape_failed_tenant" if tenant else "hesape_failed_queue" if queue else "hesape_failed"
    wanted = ["state = 3"]
    wanted += ["tenant = ?"] if tenant else []
    wanted += ["queue = ?"] if queue else []
    wanted += ["(failed_us, id) < (?, ?)"] if after else []
    return (
        f"SELECT {COLUMNS} FROM hesape_jobs INDEXED BY {index} WHERE {' AND '.join(wanted)} "
        "ORDER BY failed_us DESC, id DESC LIMIT ?"
    )
