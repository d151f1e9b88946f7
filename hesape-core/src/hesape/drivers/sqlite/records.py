"""Between the contract's values and the columns of `hesape_jobs`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final, Literal

from hesape.records import NewRow, Row

READY: Final = 0
SCHEDULED: Final = 1
RESERVED: Final = 2
FAILED: Final = 3
STATES: Final[tuple[Literal["ready", "scheduled", "reserved", "failed"], ...]] = (
    "ready",
    "scheduled",
    "reserved",
    "failed",
)

_place = itemgetter(6, 7, 0)  # priority, due_us, seq of COLUMNS (O1)


def to_blob(job_id: str) -> bytes:
    """The 16 bytes of an id."""
    return bytes.fromhex(job_id.replace("-", ""))


def to_text(blob: bytes) -> str:
    """The canonical text of an id."""
    digits = blob.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def new_values(row: NewRow, now_us: int) -> tuple[Any, ...]:
    """The parameters of `INSERT_JOB` (G4, T2)."""
    due_us = now_us + row.delay_us if row.run_at_us is None else max(now_us, row.run_at_us)
    state = READY if due_us <= now_us else SCHEDULED
    blob = bytes.fromhex(row.id.replace("-", ""))
    return blob, state, row.queue, row.priority, due_us, row.tenant, row.name, now_us, row.envelope


def to_rows(found: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Rows of `COLUMNS`, in the order given."""
    return [Row._make((to_text(values[1]), *values[2:])) for values in found]


def in_place(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same in the order of handing out, which RETURNING doesn't keep (O1)."""
    return sorted(found, key=_place)
