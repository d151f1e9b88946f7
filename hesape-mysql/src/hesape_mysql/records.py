"""Rows and values between Python and SQL: literals, digests, and the one packed column that a row comes back in."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from hesape.records import Key, NewRow, Row
from hesape_mysql.statements import MOST, NOW

NEVER_US: Final = 2**63 - 1


class State(IntEnum):
    """The state of a job, as its column has it."""

    READY = 0
    SCHEDULED = 1
    RESERVED = 2
    FAILED = 3


# Literals.


def text(value: str) -> str:
    """A text, whatever the character set of the connection."""
    return f"_utf8mb4 x'{value.encode().hex()}'"


def optional_text(value: str | None) -> str:
    """A text or null."""
    return "null" if value is None else text(value)


def blob(value: bytes | str) -> str:
    """Bytes, or a text that is compared as bytes."""
    return f"x'{(value.encode() if isinstance(value, str) else value).hex()}'"


def uuid(job_id: str) -> str:
    """A job's id."""
    return f"x'{job_id.replace('-', '')}'"


def uuids(ids: Iterable[str]) -> str:
    """Several ids."""
    return ",".join([f"x'{job_id.replace('-', '')}'" for job_id in ids])


def raw_ids(ids: Iterable[bytes]) -> str:
    """Several ids as the server returned them, ascending: locks are taken in this order."""
    return ",".join([f"x'{job_id.hex()}'" for job_id in sorted(ids)])


def job_id(raw: bytes) -> str:
    """The canonical text of an id as the server returned it."""
    return _canonical(raw.hex())


def _canonical(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# Digests: the index `held` finds rows by eight bytes of these.


def tenant_digest(tenant: str) -> int:
    """What stands for a tenant in `holder`; the statement that parks computes the same."""
    return int(hashlib.sha256(tenant.encode()).hexdigest()[:16], 16)


def worker_digest(worker: str) -> int:
    """What stands for a worker in `holder`; 0 for none. No tenant's name has a colon, so the two never mix."""
    return int(hashlib.sha256(f"worker:{worker}".encode()).hexdigest()[:16], 16) if worker else 0


def mark(token: bytes) -> int:
    """What stands for a token in `mark`."""
    return int.from_bytes(token[:8], "big")


def lock_name(database: str, prefix: str, what: str) -> str:
    """A server-wide name for a named lock: 64 characters at most, and in lower case, since the server folds it."""
    joined = "".join(f"{len(part)}:{part}" for part in (database, prefix, what))
    return f"hesape_{hashlib.sha256(joined.encode()).hexdigest()[:40]}"


# Conditions and rows.


def current(keys: Sequence[Key], now: str = NOW) -> str:
    """The condition of the deliveries that are current, each under its own token (L4), by this moment."""
    by_token: dict[bytes, list[str]] = defaultdict(list)
    for key in keys:
        by_token[key.token].append(key.id)
    # The ids stand in front, alone, for the range on the primary key.
    pairs = " or ".join(
        f"token = {blob(token)} and id in ({uuids(sorted(ids))})" if len(by_token) > 1 else f"token = {blob(token)}"
        for token, ids in by_token.items()
    )
    return f"id in ({uuids(sorted({key.id for key in keys}))}) and state = 2 and at_us > {now} and ({pairs})"


def new_row(row: NewRow, ordinal: int, now: str = NOW) -> str:
    """The values of a row to insert, due by the store's clock (G4); `ordinal` is its place in the call."""
    what = f"{text(row.tenant)},{text(row.name)},x'{row.envelope.hex()}')"
    if row.run_at_us is not None:
        at, later = f"greatest({now},{row.run_at_us})", f"{row.run_at_us}>{now}"
        state, place = f"if({later},1,0)", f"if({later},0,{row.priority})"
    elif row.delay_us:
        at, state, place = f"{now}+{row.delay_us}", "1", "0"
    else:
        at, state, place = now, "0", str(row.priority)
    return f"({uuid(row.id)},{text(row.queue)},{state},{place},{at},{now}+{ordinal},{row.priority},{at},{now},{what}"


def deliveries(packed: Iterable[bytes]) -> set[Key]:
    """Ids and tokens that came back as one column."""
    return {Key(job_id(both[:16]), both[16:]) for both in packed}


def unpack(packed: bytes, claimed_until_us: int | None = None) -> Row:
    """The row in a packed column, or as it will be once it is claimed.

    What somebody put there behind our back is decoded leniently: core parks it.
    """
    head, _, rest = packed.partition(b"\n")
    raw_id, *numbers = head.split(b" ")
    (state, at_us, priority, due_us, attempts, lapses, exceptions, pushed_us, retried_us, *lengths) = map(int, numbers)
    texts = []
    for length in lengths[:3]:
        texts.append(rest[:length].decode(errors="replace"))
        rest = rest[length:]
    error_length = lengths[3]
    if claimed_until_us is not None:
        state, at_us, attempts = State.RESERVED, claimed_until_us, min(attempts, MOST) + 1
    return Row(
        _canonical(raw_id.decode().lower()),
        rest[max(0, error_length) :],
        texts[0],
        texts[1],
        texts[2],
        priority,
        due_us,
        attempts,
        lapses,
        exceptions,
        None if error_length < 0 else rest[:error_length].decode(errors="replace"),
        at_us if state == State.RESERVED else None,
        pushed_us,
        retried_us or None,
        at_us if state == State.FAILED else None,
    )
