"""Storing jobs, all or nothing (B1, I1, I2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from hesape.driver import already_queued, already_stored
from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.records import new_values, to_blob
from hesape.drivers.sqlite.session import Session
from hesape.envelope import same_content
from hesape.records import NewRow


def store(session: Session, rows: Sequence[NewRow]) -> None:
    """Store rows in a transaction of their own: the quick way, and only when an id is taken one by one."""
    try:
        if len(rows) == 1 and rows[0].unique is None:
            session.alone(sql.INSERT_JOB, lambda now_us: new_values(rows[0], now_us))
            return
        session.begin()
        if all(row.unique is None for row in rows):
            now_us = session.now()
            session.many(sql.INSERT_JOB, [new_values(row, now_us) for row in rows])
            return
    except sqlite3.IntegrityError:
        session.back()
        session.begin()
    _one_by_one(session, rows)


def store_lent(session: Session, rows: Sequence[NewRow]) -> None:
    """Store rows in a transaction that somebody else commits; when it fails nothing of this call is left in it (X1)."""
    session.run("SAVEPOINT hesape_store")
    try:
        _one_by_one(session, rows)
    except BaseException:
        session.back("hesape_store")
        raise
    session.run("RELEASE hesape_store")


def _one_by_one(session: Session, rows: Sequence[NewRow]) -> None:
    now_us = session.now()
    for index, row in enumerate(rows):
        if not session.run(sql.INSERT_JOB_ONCE, new_values(row, now_us)):
            _check_stored(session, rows, index)
        elif row.unique is not None:
            held = (row.unique.key, row.id, now_us + row.unique.ttl_us, now_us)
            if not session.run(sql.HOLD_KEY, held):
                raise already_queued(rows, index)


def _check_stored(session: Session, rows: Sequence[NewRow], index: int) -> None:
    row = rows[index]
    same_tenant, envelope = session.rows(sql.STORED, (row.tenant, to_blob(row.id)))[0]
    if not same_tenant or not same_content(envelope, row.envelope):
        raise already_stored(rows, index)
