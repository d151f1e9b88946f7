"""What a name may look like, checked once in core so that no lax store can cut or fold it (P5, G3).

Every check returns a plain `str`, also for an enum's member or another subclass: what is checked is what is used.
"""

from __future__ import annotations

import re
import uuid

from hesape.errors import IdInvalidError, NameInvalidError

_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_WORD = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_NOT_WORD = re.compile(r"[^A-Za-z0-9._:/-]")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CONNECTION = re.compile(r"[a-z0-9_-]{1,64}")

MAX_TEXT = 255
"""The longest job name, author or display name, in characters."""


def valid_tenant(tenant: object) -> bool:
    """Whether `tenant` is `[a-z0-9][a-z0-9_-]{0,63}`, matched in full (G3)."""
    return isinstance(tenant, str) and _TENANT.fullmatch(tenant) is not None


def valid_action(action: object) -> bool:
    """Whether `action` is a word as P5 says."""
    return isinstance(action, str) and _WORD.fullmatch(action) is not None


def check_tenant(tenant: object) -> str:
    """Return `tenant`, or raise `NameInvalidError` (G3)."""
    if isinstance(tenant, str) and _TENANT.fullmatch(tenant):
        return str.__str__(tenant)
    message = f"tenant {_show(tenant)}: expected 1 to 64 of a-z, 0-9, '_' and '-', beginning with a letter or digit"
    raise NameInvalidError(message)


def check_queue(queue: object) -> str:
    """Return `queue`, or raise `NameInvalidError` (P5)."""
    return _check_word("queue", queue)


def check_action(action: object) -> str:
    """Return `action`, or raise `NameInvalidError` (P5)."""
    return _check_word("action", action)


def check_connection(name: object) -> str:
    """Return a connection's name, or raise `NameInvalidError`."""
    if isinstance(name, str) and _CONNECTION.fullmatch(name):
        return str.__str__(name)
    message = f"connection {_show(name)}: expected 1 to 64 of a-z, 0-9, '_' and '-'"
    raise NameInvalidError(message)


def check_text(what: str, text: object, *, empty: bool = False) -> str:
    """Return a job name, author or display name of at most 255 printable characters, or raise `NameInvalidError`."""
    if not isinstance(text, str):
        message = f"{what} {_show(text)}: expected text"
        raise NameInvalidError(message)
    text = str.__str__(text)  # a subclass would answer for its own length
    if not text:
        if empty:
            return text
        message = f"{what}: expected 1 to {MAX_TEXT} printable characters, found none"
        raise NameInvalidError(message)
    if len(text) > MAX_TEXT:
        message = f"{what}: {len(text)} characters, at most {MAX_TEXT} are allowed"
        raise NameInvalidError(message)
    if not text.isprintable():
        bad = next(c for c in text if not c.isprintable())
        message = f"{what} {_show(text)}: the character {bad!a} isn't printable"
        raise NameInvalidError(message)
    return text


def check_id(job_id: object) -> str:
    """Return the canonical text of a job id given as text or `uuid.UUID`, or raise `IdInvalidError`."""
    if isinstance(job_id, str) and _ID.fullmatch(job_id):
        return str.__str__(job_id)
    if isinstance(job_id, uuid.UUID):
        return str(job_id)
    message = f"job id {_show(job_id)}: expected the canonical lower-case text of a UUID"
    raise IdInvalidError(message)


def _check_word(what: str, word: object) -> str:
    if isinstance(word, str) and _WORD.fullmatch(word):
        return str.__str__(word)
    rule = "expected 1 to 128 of A-Z, a-z, 0-9 and . _ : / -"
    if isinstance(word, str) and (bad := _NOT_WORD.search(word)):
        message = f"{what} {_show(word)}: the character {bad.group()!a} isn't allowed; {rule}"
    elif isinstance(word, str):
        message = f"{what} {_show(word)}: {len(word)} characters; {rule}"
    else:
        message = f"{what} {_show(word)}: {rule}"
    raise NameInvalidError(message)


def _show(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 - long enough to recognise, short enough for a log line
