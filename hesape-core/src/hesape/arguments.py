"""A handler's parameters: what is injected, what comes from the payload, and how the two fit."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from hesape.errors import ArgumentsMismatchError, HandlerError
from hesape.grants import Grant
from hesape.jobs import Job
from hesape.structure import Form, form

_VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class Argument(NamedTuple):
    """One parameter."""

    name: str
    source: Literal["job", "grant", "payload"]
    form: Form | None
    optional: bool


class Parameters:
    """The parameters of one function. `shown` begins every message."""

    def __init__(self, function: Callable[..., Any], shown: str) -> None:
        """Look at the signature; annotations are resolved at first use, when all they name is defined."""
        self._function = function
        self._shown = shown
        self._signature = inspect.signature(function)
        for one in self._signature.parameters.values():
            if one.kind in _VARIADIC:
                starred = f"{_VARIADIC[one.kind]}{one.name}"
                raise HandlerError(f"{shown}: {starred} can't be filled from a payload; name each parameter")
        kinds = [one.kind for one in self._signature.parameters.values()]
        self._by_position = inspect.Parameter.POSITIONAL_ONLY in kinds

    @functools.cached_property
    def _arguments(self) -> tuple[Argument, ...]:
        function = inspect.unwrap(self._function)
        try:
            hints = typing.get_type_hints(function)
        except Exception as error:  # an annotation is any expression
            message = f"{self._shown}: its annotations can't be resolved: {type(error).__name__}: {error}"
            if isinstance(error, NameError):
                message += "; import what they name at run time, not under TYPE_CHECKING"
            raise HandlerError(message) from error
        return tuple(self._argument(one, hints.get(one.name, Any)) for one in self._signature.parameters.values())

    @functools.cached_property
    def _payload(self) -> dict[str, Argument]:
        return {one.name: one for one in self._arguments if one.source == "payload"}

    def _argument(self, parameter: inspect.Parameter, annotation: Any) -> Argument:
        optional = parameter.default is not inspect.Parameter.empty
        injected = _without_none(annotation)
        if injected is Job or injected is Grant:
            return Argument(parameter.name, "job" if injected is Job else "grant", None, optional)
        try:
            return Argument(parameter.name, "payload", form(annotation), optional)
        except HandlerError as error:
            raise HandlerError(f"{self._shown}: parameter {parameter.name}: {error}") from None

    def check(self) -> None:
        """Resolve the annotations; `HandlerError` for one that can't be resolved or filled."""
        _ = self._arguments

    def read(self, job: Job, grant: Grant) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call for `job`: an object fills parameters by name, an array in order.

        `ArgumentsMismatchError` names everything that is missing, unexpected or of another type.
        """
        try:
            found = _matched(self._payload, self._named(job.decode()), Form.load)
        except ArgumentsMismatchError as error:
            raise ArgumentsMismatchError(f"job {job.id} doesn't fit {self._shown}: {error}") from error
        values = {one.name: job if one.source == "job" else grant for one in self._arguments if one.form is None}
        values |= found
        if not self._by_position:
            return (), values  # what is missing has a default
        bound = inspect.BoundArguments(
            self._signature,
            typing.cast("Any", {name: values[name] for name in self._signature.parameters if name in values}),
        )
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def write(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of arguments that fit, else `ArgumentsMismatchError`; nothing is coerced."""
        try:
            return _matched(self._payload, arguments, Form.dump)
        except ArgumentsMismatchError as error:
            raise ArgumentsMismatchError(f"{self._shown}: {error}") from error

    def _named(self, payload: object) -> Mapping[str, Any]:
        if isinstance(payload, list):
            if len(payload) > len(self._payload):
                raise ArgumentsMismatchError(f"{len(payload)} values for {len(self._payload)} parameters")
            return dict(zip(self._payload, payload, strict=False))
        if isinstance(payload, dict):
            return payload
        raise ArgumentsMismatchError(f"the payload is {type(payload).__name__}, expected an object or an array")


def _matched(
    wanted: Mapping[str, Argument], values: Mapping[str, Any], convert: Callable[[Form, Any, str], Any]
) -> dict[str, Any]:
    """Every value converted; one error names all that is missing, unexpected or of another type."""
    missing = [name for name, one in wanted.items() if name not in values and not one.optional]
    problems = [f"missing {', '.join(missing)}"] if missing else []
    if unexpected := [str(name) for name in values if name not in wanted]:
        problems.append(f"unexpected {', '.join(unexpected)}")
    found = {}
    for name, one in wanted.items():
        if name in values and one.form is not None:
            try:
                found[name] = convert(one.form, values[name], name)
            except ArgumentsMismatchError as error:
                problems.append(str(error))
    if problems:
        raise ArgumentsMismatchError("; ".join(problems))
    return found


def _without_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in {typing.Union, types.UnionType}:
        others = [kind for kind in get_args(annotation) if kind is not type(None)]
        return others[0] if len(others) == 1 else annotation
    return annotation
