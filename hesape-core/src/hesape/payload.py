"""The payload: JSON of at most 32 KiB, encoded once, stored and popped byte for byte (P1-P3).

What JSON can't carry without a change is refused with the path of the value, when the job is built.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, Never

from hesape.errors import PayloadInvalidError, PayloadTooLargeError

MAX_PAYLOAD: Final = 32 * 1024
"""The largest payload in bytes of stored UTF-8, one number for every driver (P1).

Half of the narrowest carrier, a column of 65,535 bytes. 32 KiB is thousands of ids; a document belongs in storage,
with its key in the job.
"""
MAX_NESTING: Final = 100
MAX_DIGITS: Final = 4300

_SCALARS = frozenset((str, int, float, bool, type(None)))
_decode = json.JSONDecoder().decode  # of text: json.loads would guess the encoding of bytes first
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


def encode(value: object) -> bytes:
    """Encode a payload compactly as UTF-8; `None` becomes `{}`.

    Raises `PayloadInvalidError` with the path of what JSON can't carry unchanged, or `PayloadTooLargeError`.
    """
    if value is None:
        return b"{}"
    _check_types(value, "$", MAX_NESTING)
    try:
        data = _encode(value).encode()
    except ValueError as error:  # NaN, an infinity, a lone surrogate or an integer too long to print
        _refuse_scalar(value, "$", error)
    check_size(data)
    return data


def check_size(data: bytes) -> None:
    """Raise `PayloadTooLargeError` when `data` is over the limit (P1)."""
    if len(data) > MAX_PAYLOAD:
        message = (
            f"the payload has {len(data)} bytes, a queue stores {MAX_PAYLOAD}; store the document and push its key"
        )
        raise PayloadTooLargeError(message)


def check(data: object) -> bytes:
    """Check bytes that somebody else encoded, and return them unchanged.

    Refuses what `encode` refuses, and what isn't UTF-8 or repeats a key, with `PayloadInvalidError` (P2).
    """
    if type(data) is not bytes:
        message = f"a raw payload must be bytes, found {type(data).__name__}"
        raise PayloadInvalidError(message)
    check_size(data)
    value: object = None
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unrepeated,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            parse_int=_short_integer,
        )
        _check_types(value, "$", MAX_NESTING)
        _encode(value).encode()
    except UnicodeDecodeError as error:
        message = f"the raw payload isn't UTF-8: {error.reason} at byte {error.start}"
        raise PayloadInvalidError(message) from error
    except RecursionError as error:
        raise PayloadInvalidError(_TOO_DEEP) from error
    except UnicodeEncodeError as error:
        _refuse_scalar(value, "$", error)
    except json.JSONDecodeError as error:
        message = f"the raw payload isn't JSON: {error.msg} at character {error.pos}"
        raise PayloadInvalidError(message) from error
    return data


def decode(data: bytes) -> Any:
    """Decode a stored payload. It was checked when it was pushed."""
    return _decode(data.decode())


_TOO_DEEP = f"the payload is nested deeper than {MAX_NESTING}"


def _check_types(value: object, path: str, room: int) -> None:
    kind = type(value)
    if kind in _SCALARS:
        return
    if room == 0:
        raise PayloadInvalidError(_TOO_DEEP, path)
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]
            if type(key) is not str:
                message = f"{path}: the key {key!r} is {type(key).__name__}, JSON has text keys only"
                raise PayloadInvalidError(message, path)
            if type(item) not in _SCALARS:
                _check_types(item, f"{path}.{key}", room - 1)
    elif kind is list:
        for index, item in enumerate(value):  # type: ignore[arg-type]
            if type(item) not in _SCALARS:
                _check_types(item, f"{path}[{index}]", room - 1)
    else:
        raise PayloadInvalidError(
            f"{path}: {kind.__name__} isn't JSON; {_ADVICE.get(kind.__name__, _ADVICE_ELSE)}", path
        )


_ADVICE = {"tuple": "use a list", "set": "use a sorted list", "bytes": "store them and push their key"}
_ADVICE_ELSE = "use dict, list, str, int, float, bool or None, or a handler's annotated parameters"


def _refuse_scalar(value: object, path: str, error: Exception) -> Never:
    """Find the scalar that the encoder refused, for its path."""
    for place, scalar in _scalars(value, path):
        reason = _scalar_fault(scalar)
        if reason:
            raise PayloadInvalidError(f"{place}: {reason}", place) from error
    message = f"the payload can't be encoded: {error}"
    raise PayloadInvalidError(message) from error


def _scalars(value: object, path: str) -> list[tuple[str, object]]:
    if isinstance(value, dict):
        keys: list[tuple[str, object]] = [(f"{path}.<key>", key) for key in value]
        return keys + [found for key, item in value.items() for found in _scalars(item, f"{path}.{key!a}")]
    if isinstance(value, list):
        return [found for index, item in enumerate(value) for found in _scalars(item, f"{path}[{index}]")]
    return [(path.replace("'", ""), value)]


def _scalar_fault(scalar: object) -> str:
    if isinstance(scalar, float) and not math.isfinite(scalar):
        return f"{scalar} isn't JSON"
    if isinstance(scalar, int) and abs(scalar) >= 10**MAX_DIGITS:
        return f"an integer of more than {MAX_DIGITS} digits"
    if isinstance(scalar, str):
        try:
            scalar.encode()
        except UnicodeEncodeError as error:
            return f"a lone surrogate, {scalar[error.start]!a}, isn't text"
    return ""


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                message = f"the raw payload repeats the key {key!a}"
                raise PayloadInvalidError(message)
            seen.add(key)
    return found


def _refuse_constant(name: str) -> Never:
    message = f"{name} isn't JSON"
    raise PayloadInvalidError(message)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        message = f"the number {text[:40]} is beyond what a float holds"
        raise PayloadInvalidError(message)
    return number


def _short_integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        message = f"the raw payload has an integer of more than {MAX_DIGITS} digits"
        raise PayloadInvalidError(message)
    return int(text)
