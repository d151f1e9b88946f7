"""Storing jobs: one statement for one, COPY for many, and a careful way when something is stored already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from psycopg import errors as pg

from hesape.driver import already_queued, already_stored
from hesape.envelope import same_content
from hesape.errors import StoreBusyError, StoreUnavailableError
from hesape.records import NewRow
from hesape_postgres import records, statements
from hesape_postgres.connections import Own
from hesape_postgres.lent import Lent
from hesape_postgres.link import Link
from hesape_postgres.notify import Announcer, Woken, channel_of, payloads_of

COPY_FROM: Final = 50
"""From how many rows on COPY is cheaper than one document."""


class Runs(Protocol):
    """What runs statements: a connection of ours or a lent one."""

    def rows(self, statement: bytes, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement that answers with rows."""


def store(link: Link, announcer: Announcer, rows: Sequence[NewRow]) -> list[Woken]:
    """Store rows on a connection of our own; the queues that were woken."""
    if all(row.unique is None for row in rows):
        with link.own() as own:
            came = _one(link, own, rows[0]) if len(rows) == 1 else _many(link, own, rows)
            if came is not None:
                announcer.after(own, came)
                return came
    with link.transaction() as own:
        woken = _carefully(link, own, rows)
    if woken:
        announcer.committed(woken)
    return woken


def store_lent(link: Link, lent: Lent, rows: Sequence[NewRow]) -> None:
    """Store rows in the caller's transaction; all or none of them, and waiters are woken when the caller commits."""
    if not rows:
        return
    woken = _one(link, lent, rows[0]) if len(rows) == 1 and rows[0].unique is None else None
    if woken is None:
        with lent.savepoint():
            woken = _carefully(link, lent, rows)
    if woken:
        wake_lent(link, lent, woken)


def wake_lent(link: Link, lent: Lent, woken: Sequence[Woken]) -> None:
    """Announce within the caller's transaction: the server sends it at the commit, or never."""
    payloads = records.array(f'"{payload}"' for payload in payloads_of(woken))
    lent.rows(link.sql[statements.NOTIFY], {"channel": channel_of(link.store_id), "payloads": payloads})


def _one(link: Link, runs: Runs, row: NewRow) -> list[Woken] | None:
    """Store one row in one statement; `None` when its id is stored already."""
    stored = runs.rows(link.sql[statements.STORE_ONE], records.one(row, link.text))
    return [Woken(row.queue, stored[0][0])] if stored else None


def _many(link: Link, own: Own, rows: Sequence[NewRow]) -> list[Woken] | None:
    """Store rows that are expected to be new; `None` when an id is stored already, and then nothing is."""
    try:
        if len(rows) < COPY_FROM:
            stored = own.rows(link.sql[statements.STORE_MANY], records.many(rows, link.text))
            return [Woken._make(came) for came in stored]
        own.lost, lost = StoreUnavailableError, own.lost
        (now_us,) = own.rows(link.sql[statements.TELL_NOW])[0]
        own.lost = lost
        with own.conn.cursor() as cursor, cursor.copy(link.sql[statements.COPY]) as copy:
            copy.write(records.copied(rows, link.text, now_us))
    except pg.UniqueViolation:
        return None
    times = {(row.queue, row.delay_us, row.run_at_us) for row in rows}
    return [Woken(queue, delay_us > 0 or (run_at_us or 0) > now_us) for queue, delay_us, run_at_us in times]


def _carefully(link: Link, runs: Runs, rows: Sequence[NewRow]) -> list[Woken]:
    """Store what isn't stored yet, inside a transaction or savepoint that the raised error undoes (I1, I2)."""
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        earlier = rows[first.setdefault(row.id, index)]
        if earlier.tenant != row.tenant or not same_content(earlier.envelope, row.envelope):
            raise already_stored(rows, index)
    fresh = [rows[index] for index in first.values()]
    stored = runs.rows(link.sql[statements.STORE_MISSING], records.many(fresh, link.text))
    new = {records.as_text(job_id) for job_id, *_ in stored}
    _check_stored(link, runs, rows, [job_id for job_id in first if job_id not in new])
    _take_unique(link, runs, rows, [index for job_id, index in first.items() if job_id in new])
    return [Woken(records.as_text(queue), later) for _, queue, later in stored]


def _check_stored(link: Link, runs: Runs, rows: Sequence[NewRow], ids: Sequence[str]) -> None:
    """Raise for the first of these that is stored with other content, or for another tenant."""
    if not ids:
        return
    found = {
        records.as_text(job_id): (records.as_text(tenant), envelope)
        for job_id, tenant, envelope in runs.rows(link.sql[statements.STORED], {"ids": records.array(ids)})
    }
    wanted = set(ids)
    for index, row in enumerate(rows):
        if row.id not in wanted:
            continue
        if row.id not in found:
            message = f"job {row.id} was stored, and settled at this very moment; nothing was stored"
            raise StoreBusyError(message)
        tenant, envelope = found[row.id]
        if tenant != row.tenant or not same_content(envelope, row.envelope):
            raise already_stored(rows, index)


def _take_unique(link: Link, runs: Runs, rows: Sequence[NewRow], indexes: Sequence[int]) -> None:
    """Hold the unique keys of new rows; raise for the first whose key is held, whoever holds it (I2)."""
    wanted: dict[str, int] = {}
    for index in indexes:
        unique = rows[index].unique
        if unique is not None and wanted.setdefault(unique.key, index) != index:
            raise already_queued(rows, index)
    if not wanted:
        return
    uniques = [(key, rows[index].id, rows[index].unique) for key, index in wanted.items()]
    params = {
        "keys": [key for key, _, _ in uniques],
        "owners": [job_id for _, job_id, _ in uniques],
        "ttls": [unique.ttl_us for _, _, unique in uniques if unique is not None],
    }
    taken = {records.as_text(key) for (key,) in runs.rows(link.sql[statements.TAKE_UNIQUE], params)}
    refused = [index for key, index in wanted.items() if key not in taken]
    if refused:
        raise already_queued(rows, min(refused))
