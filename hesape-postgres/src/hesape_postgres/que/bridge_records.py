"""A row of a Que table as a job of hesape: its id, its payload and its envelope.

The row stays as it is; these are computed from it at each delivery and come out equal each time.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final, NamedTuple

from hesape.attributes import Attributes
from hesape.envelope import Content, encode
from hesape.records import Row
from hesape_postgres.que.keys import Instant

AUTHOR: Final = "que"
_NAMESPACE: Final = uuid.UUID("c3a1f6a0-7b8e-5d42-9d0c-2f6a5c1e9b77")
_NO_ATTRIBUTES: Final = Attributes()
_SPACE: Final = " \t\n\r"


class Frame(NamedTuple):
    """What holds for every row of one bridge."""

    database: str
    queue: str
    """The queue as hesape shows it."""
    tenant: str
    action: str


def bridged_id(database: str, job_id: int) -> str:
    """The job's id in hesape: a UUID made from the database's name and the row's `job_id`."""
    return str(uuid.uuid5(_NAMESPACE, f"{database}:{job_id}"))


def bridged_payload(args: bytes) -> bytes:
    """What a handler gets: keys from an object or from an array of a single object, else an array of positions.

    The bytes are cut out of the stored ones, never encoded anew (P3).
    """
    text = args.decode().strip(_SPACE)
    if text.startswith("{"):
        return text.encode()
    if not text.startswith("["):
        return b"[%b]" % text.encode()
    inner = text[1:-1].strip(_SPACE)
    if inner.startswith("{") and json.JSONDecoder().raw_decode(inner)[1] == len(inner):
        return inner.encode()
    return text.encode()


def bridged_row(columns: tuple[Any, ...], last_error: str | None, frame: Frame, deadline_us: int | None) -> Row:
    """The row as core reads it, of the columns that LOCK returns; counts come from `error_count`."""
    _, priority, run_at, job_id, job_class, args, error_count = columns
    found_id = bridged_id(frame.database, job_id)
    content = Content(
        found_id,
        frame.tenant,
        frame.action,
        AUTHOR,
        job_class,
        "",
        frame.queue,
        _NO_ATTRIBUTES,
        bridged_payload(args),
    )
    due_us = Instant.received(run_at).as_us()
    return Row(
        id=found_id,
        envelope=encode(content),
        tenant=frame.tenant,
        name=job_class,
        queue=frame.queue,
        priority=priority,
        due_us=due_us,
        attempts=error_count + 1,
        lapses=0,
        exceptions=error_count,
        last_error=last_error,
        reserved_until_us=deadline_us,
        pushed_us=due_us,
        retried_us=None,
        failed_us=None,
    )
