from __future__ import annotations

import enum
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest

from hesape.errors import ArgumentsMismatchError, HandlerError
from hesape.structure import form, structure


class Colour(enum.Enum):
    RED = "red"
    ONE = 1


class Plan(enum.StrEnum):
    FREE = "free"


class Level(enum.IntEnum):
    HIGH = 3


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@attrs.frozen
class Line:
    price: Decimal
    count: int = 1


@attrs.define
class Order:
    id: UUID
    lines: list[Line]
    note: str | None = None
    by_day: dict[str, list[datetime]] = attrs.field(factory=dict)


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)


@dataclass
class Point:
    x: float
    y: float


@attrs.frozen
class Odd:
    text: str = "a"
    hidden: int = attrs.field(init=False, default=0)


UserId = NewType("UserId", int)
SOME_ID = UUID("0190a5c8-1f2e-7abc-8def-0123456789ab")
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))

ROUND_TRIPS: list[tuple[Any, Any, Any]] = [
    (int, 42, 42),
    (int, 2**80, 2**80),
    (str, "", ""),
    (bool, True, True),
    (type(None), None, None),
    (float, 1.5, 1.5),
    (float, 3, 3.0),
    (UUID, SOME_ID, str(SOME_ID)),
    (Decimal, Decimal("12.340"), "12.340"),
    (Decimal, Decimal("1E+3"), "1E+3"),
    (datetime, NOON, "2026-03-01T12:00:00.123456+05:30"),
    (datetime, datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
    (date, date(2026, 3, 1), "2026-03-01"),
    (Colour, Colour.RED, "red"),
    (Plan, Plan.FREE, "free"),
    (Level, Level.HIGH, 3),
    (Rights, Rights.READ | Rights.WRITE, 3),
    (Literal["a", 1], 1, 1),
    (int | None, None, None),
    (UUID | None, SOME_ID, str(SOME_ID)),
    (int | str, "x", "x"),
    (int | float | None, 1, 1),
    (list[int], [1, 2], [1, 2]),
    (dict[str, Decimal], {"a": Decimal(1)}, {"a": "1"}),
    (list[datetime | None], [NOON, None], [NOON.isoformat(), None]),
    (list, [1, "a", None], [1, "a", None]),
    (dict, {"a": [1]}, {"a": [1]}),
    (Any, {"a": 1.0}, {"a": 1.0}),
    (UserId, 7, 7),
    (Point, Point(1.0, 2.5), {"x": 1.0, "y": 2.5}),
    (Node, Node("a", [Node("b")]), {"name": "a", "children": [{"name": "b", "children": []}]}),
    (
        Order,
        Order(SOME_ID, [Line(Decimal("1.10"))], by_day={"mon": [NOON]}),
        {
            "id": str(SOME_ID),
            "lines": [{"price": "1.10", "count": 1}],
            "note": None,
            "by_day": {"mon": [NOON.isoformat()]},
        },
    ),
]


@pytest.mark.parametrize(("annotation", "value", "written"), ROUND_TRIPS, ids=str)
def test_a_value_is_written_as_json_and_comes_back_equal(annotation: Any, value: Any, written: Any) -> None:
    found = form(annotation)
    json_value = found.dump(value, "x")
    assert (json_value, type(json_value)) == (written, type(written))
    back = found.load(json.loads(json.dumps(json_value)), "x")
    assert back == value
    assert type(back) is type(value) or annotation is float


MISFITS: list[tuple[Any, Any, str]] = [
    (int, "42", "x: expected int, found str"),
    (int, True, "x: expected int, found bool"),
    (int, 1.0, "x: expected int, found float"),
    (int, None, "x: expected int, found None"),
    (str, 42, "x: expected str, found int"),
    (bool, 1, "x: expected bool, found int"),
    (float, True, "x: expected float, found bool"),
    (float, "1", "x: expected float, found str"),
    (float, 2**53 + 1, "x: expected float, found int"),
    (float, 10**400, "x: expected float, found int"),
    (UUID, "no", "x: expected the text of a UUID, found other text"),
    (UUID, "{" + str(SOME_ID) + "}", "x: expected the text of a UUID, found other text"),
    (UUID, 3, "x: expected UUID as text, found int"),
    (Decimal, "NaN", "x: expected a finite Decimal"),
    (Decimal, "1,5", "x: expected the text of a Decimal, found other text"),
    (Decimal, 1.5, "x: expected Decimal as text, found float"),
    (datetime, "2026-03-01T12:00:00", "x: expected an aware datetime, found one without a time zone"),
    (datetime, "noon", "x: expected an ISO 8601 datetime, found other text"),
    (date, "2026-03-01T12:00:00", "x: expected an ISO 8601 date, found other text"),
    (Colour, True, "x: expected a value of Colour, found bool"),
    (Colour, "blue", "x: expected a value of Colour, found str"),
    (Colour, [], "x: expected a value of Colour, found list"),
    (Literal["a", 1], True, "x: expected one of 'a', 1, found bool"),
    (int | str, 1.5, "x: expected int or str, found float"),
    (list[int], "12", "x: expected list, found str"),
    (list[int], {"a": 1}, "x: expected list, found dict"),
    (list[int], [1, "2"], "x[1]: expected int, found str"),
    (dict[str, list[int]], {"a": [None]}, "x.a[0]: expected int, found None"),
    (list, {}, "x: expected list, found dict"),
    (Point, {"x": 1}, "x.y: missing"),
    (Point, {"x": 1, "y": 2, "z": 3}, "x: unexpected z"),
    (Point, [1, 2], "x: expected an object for Point, found list"),
    (Node, {"name": "a", "children": [{"name": 1}]}, "x.children[0].name: expected str, found int"),
]


@pytest.mark.parametrize(("annotation", "value", "problem"), MISFITS, ids=str)
def test_json_that_does_not_fit_is_refused_with_its_path(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(ArgumentsMismatchError) as caught:
        form(annotation).load(value, "x")
    assert str(caught.value) == problem


def test_every_misfit_of_a_class_is_named_at_once() -> None:
    with pytest.raises(ArgumentsMismatchError) as caught:
        form(Order).load({"id": 3, "lines": [{"price": "1", "count": "2"}], "extra": 1}, "order")
    assert str(caught.value).split("; ") == [
        "order.id: expected UUID as text, found int",
        "order.lines[0].count: expected int, found str",
        "order: unexpected extra",
    ]


UNFIT: list[tuple[Any, Any, str]] = [
    (int, "42", "x: expected int, found str"),
    (int, Level.HIGH, "x: expected int, found Level"),
    (str, Plan.FREE, "x: expected str, found Plan"),
    (UUID, str(SOME_ID), "x: expected UUID, found str"),
    (datetime, datetime(2026, 3, 1), "x: expected an aware datetime, found one without a time zone"),  # noqa: DTZ001
    (date, NOON, "x: expected date, found datetime"),
    (Decimal, Decimal("inf"), "x: expected a finite Decimal"),
    (Colour, "red", "x: expected Colour, found str"),
    (list[int], (1, 2), "x: expected list, found tuple"),
    (dict[str, int], {1: 2}, "x: expected str, found int"),
    (Line, {"price": "1"}, "x: expected Line, found dict"),
    (Line, Line("1.5"), "x: expected Decimal, found str"),  # type: ignore[arg-type]
    (Order, Order(SOME_ID, [Line(Decimal(1), count=True)]), "x: expected int, found bool"),
]


@pytest.mark.parametrize(("annotation", "value", "problem"), UNFIT, ids=str)
def test_a_value_of_another_type_is_refused_before_it_is_pushed(annotation: Any, value: Any, problem: str) -> None:
    with pytest.raises(ArgumentsMismatchError) as caught:
        form(annotation).dump(value, "x")
    assert str(caught.value).endswith(problem.removeprefix("x"))


def test_a_value_that_would_not_come_back_equal_is_refused() -> None:
    odd = Odd()
    object.__setattr__(odd, "hidden", 7)
    with pytest.raises(ArgumentsMismatchError, match="this Odd wouldn't come back equal"):
        form(Odd).dump(odd, "x")


def test_a_datetime_keeps_its_moment_and_offset_but_not_the_name_of_its_zone() -> None:
    value = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Rome"))
    back = form(datetime).load(form(datetime).dump(value, "x"), "x")
    assert (back, back.utcoffset()) == (value, value.utcoffset())


@pytest.mark.parametrize(
    ("annotation", "named"),
    [
        (set[int], "set[int]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (bytes, "bytes"),
        (Path, "Path"),
        (dict[int, str], "dict[int, str]"),
        (list[set[int]], "set[int]"),
        (UUID | str, "uuid.UUID | str"),
        (Line | Point, f"{Line.__module__}.Line | {Line.__module__}.Point"),
        (timedelta, "timedelta"),
    ],
    ids=str,
)
def test_an_annotation_without_an_exact_form_is_named(annotation: Any, named: str) -> None:
    with pytest.raises(HandlerError) as caught:
        form(annotation)
    assert str(caught.value) == f"{named} has no exact JSON form; see hesape.structure for those that have"


def test_structure_begins_with_what_it_was_about() -> None:
    assert structure({"x": 1, "y": 2}, Point, "job 1") == Point(1.0, 2.0)
    with pytest.raises(ArgumentsMismatchError) as caught:
        structure({"x": 1}, Point, "job 1 (invoice.send)")
    assert str(caught.value) == "job 1 (invoice.send): payload.y: missing"


def test_structure_reads_what_cattrs_can_besides() -> None:
    assert structure([1, 2], tuple[int, ...], "job") == (1, 2)


def test_plain_scalars_need_no_cattrs() -> None:
    ask = "import sys; from hesape.structure import form; form(int).load(1, 'x'); print('cattrs' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
