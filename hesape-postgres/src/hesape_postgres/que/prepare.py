"""Preparing the statements of one job ahead of its first use.

The client prepares each statement when it first runs it; calling this is optional and moves that cost to where a pool
makes its connections. A statement is prepared by running it once on a key that no row can have.
"""

from __future__ import annotations

from typing import Any, Protocol

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int2, Int8

from hesape_postgres.que.errors import translate_errors
from hesape_postgres.que.keys import Instant
from hesape_postgres.que.statements import CHECK, DESTROY, INSERT, LOCK, SET_ERROR, UNLOCK

# The columns' types decide which prepared statement a call finds, so these are the types that the client sends. A queue
# of NULL equals no row's, and the other two do nothing for a NULL type and a NULL lock.
_HARMLESS = (
    (INSERT, ("", None, None, None, None)),
    (INSERT, ("", None, None, b"[]", None)),
    (LOCK, {"queue": None, "most": 1}),
    (CHECK, (None, Int2(0), Instant(0), Int8(0))),
    (DESTROY, (None, Int2(0), Instant(0), Int8(0))),
    (SET_ERROR, (1, 1.0, "", None, Int2(0), Instant(0), Int8(0))),
    (UNLOCK, (None,)),
)


class Preparer(Protocol):
    """Anything that can execute: a psycopg connection or cursor, or what behaves like one."""

    def execute(self, query: Any, params: Any = None, *, prepare: bool | None = None) -> Any:
        """Run a statement, prepared on the server."""
        ...


def prepare_statements(conn: psycopg.Connection[Any]) -> None:
    """Prepare on a connection; fits a pool's `configure`, and twice is harmless.

    A connection that was idle is idle again, as a pool demands. Raises `SchemaError` where there is no Que table.
    """
    idle = conn.info.transaction_status == TransactionStatus.IDLE
    prepare_statements_with_preparer(psycopg.Cursor(conn))
    if idle and not conn.autocommit:
        conn.commit()  # a rollback would make psycopg forget what it prepared


def prepare_statements_with_preparer(preparer: Preparer) -> None:
    """Prepare through anything that can execute, inside its transaction if it has one; nothing is committed."""
    with translate_errors("preparing the statements of a Que table"):
        for statement, parameters in _HARMLESS:
            preparer.execute(statement, parameters, prepare=True)
