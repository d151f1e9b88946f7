"""Single values to JSON and back without coercion: each function here returns its value or raises `Misfit`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum, Flag
from typing import Any, Final, TypeAlias, get_args
from uuid import UUID

PLAIN: Final = (Any, object, list, dict)
"""Annotations that say nothing about what is inside."""
SCALARS: Final = (int, str, float, bool, type(None))
Convert: TypeAlias = Callable[[Any], Any]


class Misfit(ValueError):  # noqa: N818 - it ends as the text of an ArgumentsMismatchError
    """A value of another type; its text says what was expected and what was found."""


class Inside(ValueError):  # noqa: N818 - it only says where
    """A misfit inside a list or an object."""

    def __init__(self, step: str, error: Exception) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


def expected(kind: str, value: object) -> Misfit:
    """The misfit of a value that isn't `kind`. It names types, never the value: a payload may be private."""
    return Misfit(f"expected {kind}, found {'None' if value is None else type(value).__name__}")


def exactly(kind: type) -> Convert:
    """Only this very type, no subclass."""
    name = "None" if kind is type(None) else kind.__name__

    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise expected(name, value)
        return value

    return check


def _float(value: Any) -> float:
    if type(value) is int and abs(value) <= 2**1023 and float(value) == value:
        return float(value)
    if type(value) is not float:
        raise expected("float", value)
    return value


def _text_of(kind: type, parse: Callable[[str], Any], what: str) -> Convert:
    def load(value: Any) -> Any:
        if type(value) is not str:
            raise expected(f"{kind.__name__} as text", value)
        try:
            return parse(value)
        except Misfit:
            raise
        except (ValueError, InvalidOperation) as error:
            message = f"expected {what}, found other text"
            raise Misfit(message) from error

    return load


def _parse_uuid(text: str) -> UUID:
    found = UUID(text)
    if str(found) != text.lower():
        raise ValueError
    return found


def _parse_datetime(text: str) -> datetime:
    return _aware(datetime.fromisoformat(text))


def _parse_decimal(text: str) -> Decimal:
    return _finite(Decimal(text))


def _aware(value: datetime) -> datetime:
    if value.utcoffset() is None:
        message = "expected an aware datetime, found one without a time zone"
        raise Misfit(message)
    return value


def _finite(value: Decimal) -> Decimal:
    if not value.is_finite():
        message = "expected a finite Decimal"
        raise Misfit(message)
    return value


LOADS: Final[dict[Any, Convert]] = {
    **{kind: exactly(kind) for kind in (int, str, bool, type(None))},
    None: exactly(type(None)),
    float: _float,
    UUID: _text_of(UUID, _parse_uuid, "the text of a UUID"),
    Decimal: _text_of(Decimal, _parse_decimal, "the text of a Decimal"),
    datetime: _text_of(datetime, _parse_datetime, "an ISO 8601 datetime"),
    date: _text_of(date, date.fromisoformat, "an ISO 8601 date"),
}
DUMPS: Final[dict[Any, Convert]] = {
    **{kind: LOADS[kind] for kind in (*SCALARS, None)},
    UUID: lambda value: str(exactly(UUID)(value)),
    Decimal: lambda value: str(_finite(exactly(Decimal)(value))),
    datetime: lambda value: _aware(exactly(datetime)(value)).isoformat(),
    date: lambda value: exactly(date)(value).isoformat(),
}


def plain(annotation: Any) -> Convert:
    """JSON as it is; the payload's encoder refuses what isn't."""
    return exactly(annotation) if annotation in {list, dict} else lambda value: value


def load_enum(kind: type[Enum]) -> Convert:
    """A member by its value, and by the type of its value: True is no 1."""
    members = {(type(member.value), member.value): member for member in kind}

    def load(value: Any) -> Any:
        if issubclass(kind, Flag) and type(value) is int:
            return kind(value)
        if type(value) not in SCALARS or (type(value), value) not in members:
            raise expected(f"a value of {kind.__name__}", value)
        return members[type(value), value]

    return load


def dump_enum(kind: type[Enum]) -> Convert:
    """The value of a member."""
    return lambda value: exactly(kind)(value).value


def one_of(annotation: Any) -> Convert:
    """One of a Literal's values."""
    allowed = {(type(value), value) for value in get_args(annotation)}

    def check(value: Any) -> Any:
        if type(value) not in SCALARS or (type(value), value) not in allowed:
            raise expected(f"one of {', '.join(map(repr, get_args(annotation)))}", value)
        return value

    return check


def any_of(kinds: tuple[Any, ...]) -> Convert:
    """A value of one of several scalars."""

    def check(value: Any) -> Any:
        if type(value) in kinds:
            return value
        if float in kinds and type(value) is int:
            return _float(value)
        raise expected(" or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds), value)

    return check


def maybe(kind: Any, of: Callable[[Any], Convert]) -> Convert:
    """A value of `kind`, or None."""
    return lambda value: None if value is None else of(kind)(value)


def each(annotation: Any, of: Callable[[Any], Convert]) -> Convert:
    """A list, each item converted. What an item needs is looked up late, since types may refer to themselves."""
    (kind,) = get_args(annotation)

    def convert(value: Any) -> Any:
        one = of(kind)
        return [_within(f"[{index}]", one, item) for index, item in enumerate(exactly(list)(value))]

    return convert


def every(annotation: Any, of: Callable[[Any], Convert]) -> Convert:
    """An object with text keys, every value converted."""
    _, kind = get_args(annotation)

    def convert(value: Any) -> Any:
        one, text = of(kind), exactly(str)
        return {text(key): _within(f".{key}", one, item) for key, item in exactly(dict)(value).items()}

    return convert


def _within(step: str, one: Convert, item: Any) -> Any:
    try:
        return one(item)
    except Exception as error:
        raise Inside(step, error) from error
