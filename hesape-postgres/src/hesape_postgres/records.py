"""Between core's records and what the server takes and gives."""

from __future__ import annotations

import binascii
import json
import struct
from codecs import decode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hesape.records import Key, NewRow, Row

_COPY_HEADER: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_COPY_END: Final = b"\xff\xff"
_TOKEN_BYTES: Final = 16
_COPIED_FIELDS: Final = 9
_copied_id = struct.Struct(">hi16s").pack
_copied_length = struct.Struct(">i").pack
_copied_numbers = struct.Struct(">ihihiqiq").pack


class Text:
    """How text that may be anything is kept: as it is in a database of UTF-8, else as ASCII with escapes.

    A database in LATIN1 has no place for most characters, and one in SQL_ASCII would take the bytes of any encoding.
    """

    def __init__(self, server_encoding: str | None) -> None:
        """Decide by the encoding that the server reports."""
        self.plain = server_encoding == "UTF8"

    def put(self, text: str) -> str:
        """The text as it is stored."""
        if self.plain:
            return text
        return text.replace("\\", "\\\\").encode("ascii", "backslashreplace").decode("ascii")

    def get(self, text: str) -> str:
        """The text of what is stored, whoever changed it meanwhile."""
        if self.plain or "\\" not in text:
            return text
        try:
            return decode(text, "unicode_escape")
        except UnicodeDecodeError:
            return text

    def row(self, values: Sequence[Any]) -> Row:
        """A row of the columns of `statements.ROW`."""
        row = Row._make(values)
        if self.plain:
            return row
        error = row.last_error
        return row._replace(name=self.get(row.name), last_error=None if error is None else self.get(error))


def as_text(found: str | bytes) -> str:
    """Text, also from a lent client that speaks SQL_ASCII and gives bytes."""
    return found.decode() if isinstance(found, bytes) else found


def array(values: Iterable[str]) -> str:
    """An array's literal of values that need no quotes: ids, tokens, names of queues (P5).

    The client library builds an array value by value, which costs more than the statement.
    """
    return "{" + ",".join(values) + "}"


def keys(wanted: Iterable[Key]) -> dict[str, Any]:
    """The parameters of `statements.KEYS`."""
    listed = list(wanted)
    return {"ids": array(key.id for key in listed), "tokens": array(token(key) or "null" for key in listed)}


def token(key: Key) -> str | None:
    """A token as the server takes it; `None`, which equals nothing, for one that no claim had."""
    return key.token.hex() if len(key.token) == _TOKEN_BYTES else None


def due_us(row: NewRow, now_us: int) -> int:
    """When a row is due that is stored now (G4, O1)."""
    return now_us + row.delay_us if row.run_at_us is None else max(now_us, row.run_at_us)


def one(row: NewRow, text: Text) -> Mapping[str, Any]:
    """The parameters of `STORE_ONE`."""
    return {
        "id": row.id,
        "queue": row.queue,
        "tenant": row.tenant,
        "name": text.put(row.name).encode(),
        "envelope": row.envelope,
        "priority": row.priority,
        "delay": row.delay_us,
        "run_at": row.run_at_us,
    }


def many(rows: Sequence[NewRow], text: Text) -> Mapping[str, Any]:
    """The parameters of `STORE_MANY` and `STORE_MISSING`: one document of ASCII."""
    documents = [
        {
            "i": row.id,
            "q": row.queue,
            "t": row.tenant,
            "n": text.put(row.name),
            "e": binascii.b2a_base64(row.envelope, newline=False).decode("ascii"),
            "p": row.priority,
            "d": row.delay_us,
            "a": row.run_at_us,
            "o": place,
        }
        for place, row in enumerate(rows)
    ]
    return {"rows": json.dumps(documents)}


def copied(rows: Sequence[NewRow], text: Text, now_us: int) -> bytes:
    """Rows as `COPY` takes them: packed here, for the client library does it value by value."""
    parts = [_COPY_HEADER]
    packed: dict[tuple[str, str, str], bytes] = {}  # rows of one bulk share most of these
    for row in rows:
        names = row.queue, row.tenant, row.name
        if names not in packed:
            packed[names] = _copied_texts(row.queue, row.tenant, text.put(row.name))
        due = due_us(row, now_us)
        parts += (
            _copied_id(_COPIED_FIELDS, 16, bytes.fromhex(row.id.replace("-", ""))),
            packed[names],
            _copied_length(len(row.envelope)),
            row.envelope,
            _copied_numbers(2, due > now_us, 2, row.priority, 8, due, 8, now_us),
        )
    parts.append(_COPY_END)
    return b"".join(parts)


def _copied_texts(*texts: str) -> bytes:
    return b"".join(_copied_length(len(part)) + part for part in (text.encode() for text in texts))
