"""What goes over the wire: rows as scripts take them, and what they answer as rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hesape.records import Claimed, Key, NewRow, Row

_FRESH: Final = 75
"""The length of a member before its counts; see scripts/parts/member.lua."""
_PRIORITY_SHIFT: Final = 32768
_NO_JOB: Final = b"0\n\n\n\n"


def new_job(row: NewRow) -> tuple[str, str, bytes]:
    """One job as push.lua takes it: meta, queue, record."""
    moment = f"d{row.delay_us:018d}" if row.run_at_us is None else f"a{max(0, row.run_at_us):018d}"
    unique = "" if row.unique is None else f"{row.unique.ttl_us} {row.unique.key}"
    meta = f"{row.priority + _PRIORITY_SHIFT:05d}{row.id}{moment}{unique}"
    return meta, row.queue, f"{row.tenant}\n{row.name}\n{row.queue}\n".encode() + row.envelope


def envelope_of(job: bytes) -> bytes:
    """The envelope in a stored record."""
    return job.split(b"\n", 4)[4]


def tenant_of(job: bytes) -> str:
    """The tenant's copy in a stored record."""
    return job.split(b"\n", 2)[1].decode()


def claimed(answer: list[Any], done: Sequence[Key]) -> Claimed:
    """What reserve.lua answers."""
    now, lost, paused, next_due, ends, found, errors = answer
    texts = {errors[i]: _text(errors[i + 1]) for i in range(0, len(errors), 2)}
    common = None if isinstance(ends, list) else int(ends)
    rows = []
    for n in range(len(found) // 2):
        end = int(ends[n]) if common is None else common
        rows.append(_row(found[2 * n], found[2 * n + 1], texts.get(n), end, None))
    return Claimed(
        rows,
        [done[position] for position in lost],
        frozenset(queue.decode() for queue in paused),
        int(now),
        None if next_due is None else int(next_due),
    )


def failed_row(job_id: bytes, job: bytes | None, state: bytes | None, error: bytes | None) -> Row:
    """One failed job: its id, record, state and error."""
    if state is None:
        state = b"f%b%b%b%b\n\n" % (bytes(16), b"0" * 36, b"0" * 39, job_id)
    member = state[53 : state.index(b"\n", 53 + _FRESH)]
    return _row(member, job, _text(error), None, int(state[17:35]))


def _row(member: bytes, job: bytes | None, error: str | None, until_us: int | None, failed_us: int | None) -> Row:
    # A record that is gone, or that nobody could have written, is shown with empty copies: core parks it (G8).
    parts = (job or _NO_JOB).split(b"\n", 4)
    pushed, tenant, name, queue, envelope = parts if len(parts) == 5 else _NO_JOB.split(b"\n", 4)  # noqa: PLR2004
    if member[_FRESH:] == b"1.0.0..":
        attempts, lapses, exceptions, retried = 1, 0, 0, None
    else:
        counts = member[_FRESH:].split(b".")
        attempts, lapses, exceptions = int(counts[0]), int(counts[1]), int(counts[2])
        retried = int(counts[3]) if counts[3] else None
    return Row(
        member[39:75].decode(),
        envelope,
        tenant.decode(errors="replace"),
        name.decode(errors="replace"),
        queue.decode(errors="replace"),
        int(member[:5]) - _PRIORITY_SHIFT,
        int(member[5:23]),
        attempts,
        lapses,
        exceptions,
        error,
        until_us,
        int(pushed),
        retried,
        failed_us,
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
