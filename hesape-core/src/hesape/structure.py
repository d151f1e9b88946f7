"""Typed values to JSON and back, strictly and exactly: what a handler's parameters may be (P2).

    int, str, bool, None     as they are; nothing is coerced: neither "42" nor True is an int
    float                    a number; a whole number fits when a float holds it exactly
    UUID, Decimal            their text; a Decimal must be finite
    datetime                 ISO 8601, aware; the offset is kept, the name of the zone isn't
    date                     ISO 8601
    an Enum                  its value, which must be one of the scalars above
    Literal, X | None        one of the values; the value or null
    unions of int, str, float, bool
    list[X], dict[str, X]    of these; list, dict and Any hold plain JSON
    attrs and data classes   an object with exactly the fields of the class

Anything else is refused as an annotation, and a value that wouldn't come back equal as an argument. cattrs does the
work; it is imported when something other than a plain scalar is asked for.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin
from uuid import UUID

import attrs

from hesape import exact
from hesape.errors import ArgumentsMismatchError, HandlerError

if TYPE_CHECKING:
    import cattrs


@attrs.frozen
class Form:
    """How the values of one annotation are written to JSON and read back."""

    annotation: Any
    _load: exact.Convert
    _dump: exact.Convert
    _checked: bool
    """Whether what was dumped is read back and compared: plain scalars need it not."""

    def load(self, value: Any, path: str) -> Any:
        """A JSON value as the annotation has it; `ArgumentsMismatchError` says where it doesn't fit."""
        try:
            return self._load(value)
        except Exception as error:  # a class's own validators may raise anything
            raise ArgumentsMismatchError("; ".join(_problems(error, path))) from error

    def dump(self, value: Any, path: str) -> Any:
        """A value as JSON; `ArgumentsMismatchError` for one of another type, or that wouldn't come back equal."""
        try:
            found = self._dump(value)
            if self._checked:
                self._compare(value, found)
        except Exception as error:
            raise ArgumentsMismatchError("; ".join(_problems(error, path))) from error
        return found

    def _compare(self, value: Any, found: Any) -> None:
        back = self._load(found)
        if back != value:
            message = f"this {type(value).__name__} wouldn't come back equal"
            raise exact.Misfit(message)


def structure(value: Any, type_: Any, what: str) -> Any:
    """A JSON value as `type_`; a misfit raises `ArgumentsMismatchError` that begins with `what`."""
    try:
        return _loader(type_)(value)
    except Exception as error:
        raise ArgumentsMismatchError(f"{what}: {'; '.join(_problems(error, 'payload'))}") from error


@functools.lru_cache(maxsize=1024)
def form(annotation: Any) -> Form:
    """The form of an annotation; `HandlerError` for one that has no exact round trip."""
    if (refused := _refused(annotation, frozenset())) is not None:
        shown = repr(refused) if get_args(refused) else getattr(refused, "__qualname__", repr(refused))
        message = f"{shown} has no exact JSON form; see hesape.structure for those that have"
        raise HandlerError(message)
    return Form(annotation, _loader(annotation), _dumper(annotation), annotation not in (*exact.SCALARS, *exact.PLAIN))


def _refused(annotation: Any, seen: frozenset[Any]) -> Any:
    """The part of an annotation that isn't supported, or `None`."""
    known = (*exact.SCALARS, UUID, Decimal, datetime, date, *exact.PLAIN)
    if annotation is None or annotation in known or annotation in seen:
        return None
    origin, inner = get_origin(annotation), get_args(annotation)
    if hasattr(annotation, "__supertype__"):
        parts: tuple[Any, ...] = (annotation.__supertype__,)
    elif origin is list or _is_object(annotation):
        parts = inner
    elif origin == Literal:
        return next((annotation for value in inner if type(value) not in exact.SCALARS), None)
    elif _is_union(annotation):
        others = [part for part in inner if part is not type(None)]
        if len(others) > 1 and not set(others) <= set(exact.SCALARS):
            return annotation
        parts = tuple(others)
    elif _is_enum(annotation):
        return next((annotation for member in annotation if type(member.value) not in exact.SCALARS), None)
    elif _is_class(annotation):
        parts = tuple(_hints(annotation).values())
    else:
        return annotation
    wrong = (_refused(part, seen | {annotation}) for part in parts)
    return next((part for part in wrong if part is not None), None)


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, types.UnionType}


@functools.lru_cache(maxsize=1024)
def _loader(annotation: Any) -> exact.Convert:
    if annotation in exact.LOADS:
        return exact.LOADS[annotation]
    if _is_enum(annotation):
        return exact.load_enum(annotation)
    if (found := _either(annotation, _loader)) is not None:
        return found
    hook = _converter().get_structure_hook(annotation)
    return lambda value: hook(value, annotation)


@functools.lru_cache(maxsize=1024)
def _dumper(annotation: Any) -> exact.Convert:
    if annotation in exact.DUMPS:
        return exact.DUMPS[annotation]
    if _is_enum(annotation):
        return exact.dump_enum(annotation)
    if (found := _either(annotation, _dumper)) is not None:
        return found
    return _converter().get_unstructure_hook(annotation)


def _either(annotation: Any, of: Callable[[Any], exact.Convert]) -> exact.Convert | None:
    """What is converted in the same way in both directions, given how its parts are."""
    found: exact.Convert | None = None
    if annotation in exact.PLAIN:
        found = exact.plain(annotation)
    elif hasattr(annotation, "__supertype__"):
        found = of(annotation.__supertype__)
    elif get_origin(annotation) is list:
        found = exact.each(annotation, of)
    elif _is_object(annotation):
        found = exact.every(annotation, of)
    elif get_origin(annotation) == Literal:
        found = exact.one_of(annotation)
    elif _is_union(annotation):
        found = _union(get_args(annotation), of)
    return found


def _union(kinds: tuple[Any, ...], of: Callable[[Any], exact.Convert]) -> exact.Convert | None:
    others = [kind for kind in kinds if kind is not type(None)]
    if set(kinds) <= set(exact.SCALARS):
        return exact.any_of(kinds)
    return exact.maybe(others[0], of) if len(others) == 1 else None


def _problems(error: BaseException, path: str) -> Iterator[str]:
    """Every misfit behind an error, each with its path."""
    if isinstance(error, exact.Inside):
        yield from _problems(error.error, path + error.step)
    elif isinstance(error, exact.Misfit):
        yield f"{path}: {error}"
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            notes = getattr(inner, "__notes__", [])
            field = next((note.name for note in notes if hasattr(note, "name")), None)
            yield from _problems(inner, f"{path}.{field}" if field else path)
    elif isinstance(error, KeyError):
        yield f"{path}: missing"
    elif hasattr(error, "extra_fields"):
        yield f"{path}: unexpected {', '.join(sorted(error.extra_fields))}"
    else:
        yield f"{path}: {type(error).__name__}: {error}"


# cattrs does the classes, and what `structure` is asked for besides.


@functools.cache
def _converter() -> cattrs.Converter:
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook_factory(_is_class, lambda kind: _load_class(converter, kind))
    converter.register_unstructure_hook_factory(_is_class, lambda kind: _dump_class(converter, kind))
    return converter


def _load_class(converter: cattrs.Converter, kind: Any) -> Callable[[Any, Any], Any]:
    from cattrs.gen import make_dict_structure_fn, override

    fields: Any = {name: override(struct_hook=_late_load(hint)) for name, hint in _hints(kind).items()}
    load = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True, **fields)

    def check(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise exact.expected(f"an object for {kind.__name__}", value)
        return load(value, kind)

    return check


def _dump_class(converter: cattrs.Converter, kind: Any) -> exact.Convert:
    from cattrs.gen import make_dict_unstructure_fn, override

    fields: Any = {name: override(unstruct_hook=_late_dump(hint)) for name, hint in _hints(kind).items()}
    dump = make_dict_unstructure_fn(kind, converter, **fields)
    check = exact.exactly(kind)
    return lambda value: dump(check(value))


def _late_load(hint: Any) -> Callable[[Any, Any], Any]:
    """Looked up when it is needed, since a class may refer to itself."""
    return lambda value, _: _loader(hint)(value)


def _late_dump(hint: Any) -> exact.Convert:
    def dump(value: Any) -> Any:
        return _dumper(hint)(value)

    return dump


def _hints(kind: Any) -> dict[str, Any]:
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else list(kind.__dataclass_fields__)
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in names if name in hints}


def _is_object(annotation: Any) -> bool:
    return get_origin(annotation) is dict and get_args(annotation)[0] is str


def _is_enum(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Enum)


def _is_class(annotation: Any) -> bool:
    return isinstance(annotation, type) and (attrs.has(annotation) or hasattr(annotation, "__dataclass_fields__"))
