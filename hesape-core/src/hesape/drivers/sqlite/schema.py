"""The tables, as numbered steps. A step that was released is never changed: another one follows it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from hesape.errors import SchemaError
from hesape.records import Migration

if TYPE_CHECKING:
    from hesape.drivers.sqlite.session import Session

JOBS: Final = """
CREATE TABLE hesape_jobs (
    seq INTEGER PRIMARY KEY,                -- the order of storing; no AUTOINCREMENT, which costs a tenth of a push
    id BLOB NOT NULL,
    state INTEGER NOT NULL,                 -- 0 ready, 1 scheduled, 2 reserved, 3 failed
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    lapses INTEGER NOT NULL DEFAULT 0,
    exceptions INTEGER NOT NULL DEFAULT 0,
    pushed_us INTEGER NOT NULL,
    token BLOB,
    worker TEXT NOT NULL DEFAULT '',
    claimed_us INTEGER,
    until_us INTEGER,
    retried_us INTEGER,
    failed_us INTEGER,
    last_error TEXT,
    envelope BLOB NOT NULL,
    CHECK (state BETWEEN 0 AND 3 AND (state = 2) = (until_us IS NOT NULL) AND (state = 3) = (failed_us IS NOT NULL))
) STRICT
"""

_FIRST: Final = (
    "CREATE TABLE hesape_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    JOBS,
    "CREATE UNIQUE INDEX hesape_ids ON hesape_jobs (id)",
    # One partial index a state: what isn't due, and what failed, costs a claim nothing (O2).
    "CREATE INDEX hesape_ready ON hesape_jobs (queue, priority, due_us) WHERE state = 0",
    "CREATE INDEX hesape_scheduled ON hesape_jobs (queue, due_us) WHERE state = 1",
    "CREATE INDEX hesape_reserved ON hesape_jobs (queue, until_us) WHERE state = 2",
    # The deliveries of one claim, and of one worker.
    "CREATE INDEX hesape_held ON hesape_jobs (worker, token) WHERE state = 2",
    # The failed list, newest first: of everybody, of a queue, of a tenant (F1).
    "CREATE INDEX hesape_failed ON hesape_jobs (failed_us, id) WHERE state = 3",
    "CREATE INDEX hesape_failed_queue ON hesape_jobs (queue, failed_us, id) WHERE state = 3",
    "CREATE INDEX hesape_failed_tenant ON hesape_jobs (tenant, failed_us, id) WHERE state = 3",
    "CREATE TABLE hesape_paused (queue TEXT PRIMARY KEY) STRICT, WITHOUT ROWID",
    """
CREATE TABLE hesape_workers (
    worker TEXT PRIMARY KEY, beat_us INTEGER NOT NULL, end_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID
""",
    # Locks, counters, flags and unique keys, by their key (K1, I2).
    """
CREATE TABLE hesape_entries (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, end_us INTEGER
) STRICT, WITHOUT ROWID
""",
    "CREATE INDEX hesape_ends ON hesape_entries (end_us) WHERE end_us IS NOT NULL",
)

_STEPS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("jobs, paused queues, workers, and what locks, counters and flags hold", _FIRST),
)
LATEST: Final = len(_STEPS)


def migrations(prefix: str) -> list[Migration]:
    """Every step, as a person would run it."""
    return [
        Migration(number, title, ";\n".join(text.strip() for text in step).replace("hesape_", prefix) + ";\n")
        for number, (title, step) in enumerate(_STEPS, 1)
    ]


def version(session: Session) -> int:
    """The number of the last step applied; 0 for none."""
    if not session.rows("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'hesape_meta'"):
        return 0
    return int(_meta(session, "schema"))


def store_id(session: Session) -> str:
    """The random id of this store: two files never have the same (X1)."""
    return _meta(session, "store")


def _meta(session: Session, key: str) -> str:
    found = session.rows("SELECT value FROM hesape_meta WHERE key = ?", (key,))
    if not found:
        message = f"the table of settings has no {key!r}: another program's tables may have the same prefix"
        raise SchemaError(message)
    value: str = found[0][0]
    return value


def migrate(session: Session) -> list[int]:
    """Apply the missing steps in one transaction: of two processes that start together the second finds it done."""
    session.begin()
    before = version(session)
    check(before, allow_old=True)
    for _, step in _STEPS[before:]:
        for statement in step:
            session.run(statement)
    if before == 0:
        session.run("INSERT INTO hesape_meta (key, value) VALUES ('store', ?)", (secrets.token_hex(16),))
    session.run("INSERT OR REPLACE INTO hesape_meta (key, value) VALUES ('schema', ?)", (str(LATEST),))
    return list(range(before + 1, LATEST + 1))


def check(found: int, *, allow_old: bool = False) -> None:
    """Refuse a schema that this version can't use."""
    if found > LATEST:
        message = f"the tables have schema {found}, this hesape knows {LATEST}: upgrade hesape-core"
        raise SchemaError(message)
    if found < LATEST and not allow_old:
        message = f"the tables have schema {found}, this hesape needs {LATEST}: run `hesape migrate`"
        raise SchemaError(message)
