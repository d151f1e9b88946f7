"""What goes into the column `args`: always JSON, always as the caller wrote it."""

from __future__ import annotations

import json
from typing import Never

from hesape.errors import PayloadInvalidError

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_args(args: object) -> bytes | None:
    """The bytes to store, or `None` for the column's default.

    Bytes are checked as JSON and kept unchanged. A list or tuple becomes an array and anything else an array of one,
    because Ruby spreads the column over a method's parameters. Raises `PayloadInvalidError`.
    """
    if args is None:
        return None
    if isinstance(args, bytes | bytearray | memoryview):
        return _checked(bytes(args)) or None
    return _encoded(list(args) if isinstance(args, list | tuple) else [args])


def _checked(data: bytes) -> bytes:
    if not data:
        return data
    try:
        # Numbers are only recognised, not converted: the server takes integers of any length.
        json.loads(data.decode(), parse_int=len, parse_float=len, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        message = f"the args aren't UTF-8: {error.reason} at byte {error.start}"
        raise PayloadInvalidError(message) from error
    except json.JSONDecodeError as error:
        message = f"the args aren't JSON: {error.msg} at character {error.pos}; pass a list to have it encoded"
        raise PayloadInvalidError(message) from error
    except RecursionError as error:
        message = "the args are nested too deeply to be checked"
        raise PayloadInvalidError(message) from error
    return data


def _encoded(args: list[object]) -> bytes:
    try:
        _check_keys(args, "$")
        return _encode(args).encode()
    except PayloadInvalidError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        message = f"the args can't be written as JSON: {error}"
        raise PayloadInvalidError(message) from error


def _check_keys(value: object, path: str) -> None:
    """Refuse keys that JSON would turn into text, where two of them may become one."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                message = f"{path}: the key {key!r} is {type(key).__name__}, JSON has text keys only"
                raise PayloadInvalidError(message, path)
            _check_keys(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_keys(item, f"{path}[{index}]")


def _refuse_constant(name: str) -> Never:
    message = f"the args aren't JSON: {name} is no number"
    raise PayloadInvalidError(message)
