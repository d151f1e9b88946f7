"""The demo's own two tables beside the jobs, and the one query that its summary comes from."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from hesape.demo.figures import Figures
from hesape.jobs import Job

FILE: Final = "jobs.db"

_TABLES: Final = """
CREATE TABLE demo_starts (job BLOB, attempt INTEGER, process INTEGER);
CREATE TABLE demo_results (
    job BLOB, tenant TEXT, file TEXT, attempt INTEGER, process INTEGER, words INTEGER, lines INTEGER, longest TEXT
);
"""

SUMMARY: Final = """
SELECT job, 'done', tenant, file, attempt, process, words, lines, longest, NULL,
    (SELECT group_concat(process, ' ') FROM (SELECT process FROM demo_starts AS s WHERE s.job = r.job ORDER BY rowid))
FROM demo_results AS r
UNION ALL
SELECT id, CASE state WHEN 2 THEN 'running' WHEN 3 THEN 'failed' ELSE 'waiting' END,
    tenant, NULL, attempts, NULL, NULL, NULL, NULL, last_error,
    (SELECT group_concat(process, ' ') FROM (SELECT process FROM demo_starts AS s WHERE s.job = id ORDER BY rowid))
FROM hesape_jobs
"""
"""Everything that became of every job: the results, and what is still among the jobs with its state and reason."""


@attrs.frozen
class Entry:
    """What the store says about one job."""

    job: str
    state: str
    """`done`, `failed`, `running` or `waiting`."""
    tenant: str
    file: str | None
    attempt: int
    process: int | None
    """The process that finished it."""
    figures: Figures | None
    error: str | None
    starts: tuple[int, ...]
    """The processes that began it, in order."""


@contextlib.contextmanager
def open_in(folder: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the demo's database."""
    book = sqlite3.connect(folder / FILE, timeout=10, isolation_level=None)
    try:
        book.execute("PRAGMA synchronous = NORMAL")
        yield book
    finally:
        book.close()


def create(folder: Path) -> None:
    """Make the tables."""
    with open_in(folder) as book:
        book.executescript(_TABLES)


def note_start(book: sqlite3.Connection, job: Job, process: int) -> None:
    """A process begins a delivery."""
    book.execute("INSERT INTO demo_starts VALUES (?, ?, ?)", (_key(job.id), job.attempts, process))


def note_result(book: sqlite3.Connection, job: Job, tenant: str, file: str, process: int, found: Figures) -> None:
    """A process has counted a file."""
    book.execute(
        "INSERT INTO demo_results VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (_key(job.id), tenant, file, job.attempts, process, *found),
    )


def summary(folder: Path) -> list[Entry]:
    """What the store says about every job: one query."""
    with open_in(folder) as book:
        return [_entry(*row) for row in book.execute(SUMMARY)]


def tamper(folder: Path, job_id: str, before: bytes, after: bytes) -> None:
    """Change a stored record behind everybody's back, as somebody with access to the database could."""
    with open_in(folder) as book:
        [(envelope,)] = book.execute("SELECT envelope FROM hesape_jobs WHERE id = ?", (_key(job_id),))
        changed = envelope.replace(before, after)
        book.execute("UPDATE hesape_jobs SET envelope = ? WHERE id = ?", (changed, _key(job_id)))


def _key(job_id: str) -> bytes:
    return uuid.UUID(job_id).bytes


def _entry(job: bytes, state: str, tenant: str, file: str | None, attempt: int, *rest: Any) -> Entry:
    process, words, lines, longest, error, starts = rest
    found = None if words is None else Figures(words, lines, longest)
    begun = tuple(int(number) for number in (starts or "").split())
    return Entry(str(uuid.UUID(bytes=job)), state, tenant, file, attempt, process, found, error, begun)
