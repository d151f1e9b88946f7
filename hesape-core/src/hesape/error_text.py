"""The text of an error as it is stored: `Class: message`, a blank line, the traceback (P4)."""

from __future__ import annotations

import traceback
from typing import Final

MAX_ERROR: Final = 16 * 1024
"""The most bytes of UTF-8 that an error's text takes."""
_CUT = "\n[...]\n"


def error_text(cause: BaseException | str) -> str:
    """Describe `cause` in at most 16 KiB of UTF-8; never raises because of what the text or the exception is.

    Of a longer text the first line and the tail stay. NUL and lone surrogates are escaped.
    """
    text = str.__str__(cause) if isinstance(cause, str) else _describe(cause)
    return _shorten(_escape(text))


def message_of(cause: BaseException) -> str:
    """What an exception says; one whose `__str__` raises, be it a SystemExit, must not cost the job."""
    try:
        return str.__str__(str(cause))
    except BaseException as error:  # noqa: BLE001
        return f"<its message could not be read: {type(error).__name__}>"


def _describe(cause: BaseException) -> str:
    try:
        trace = "".join(traceback.format_exception(cause))
    except BaseException as error:  # noqa: BLE001 - an exception whose traceback can't be printed must not cost the job
        trace = f"<its traceback could not be printed: {type(error).__name__}>"
    message = message_of(cause)
    return f"{type(cause).__name__}: {message}\n\n{trace}".rstrip("\n")


def _escape(text: str) -> str:
    return text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()


def _shorten(text: str) -> str:
    data = text.encode()
    if len(data) <= MAX_ERROR:
        return text
    first, _, rest = text.partition("\n")
    head = first.encode()[: MAX_ERROR // 2].decode(errors="ignore")
    room = MAX_ERROR - len(head.encode()) - len(_CUT)
    return head + _CUT + rest.encode()[-room:].decode(errors="ignore")
