"""The payload: valid JSON of at most 32 KiB, refused with the path of what isn't (P1-P3)."""

from __future__ import annotations

import enum
import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesape import payload
from hesape.errors import PayloadInvalidError, PayloadTooLargeError

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_encoded_decodes_to_an_equal_value_and_passes_as_raw_bytes(value: object) -> None:
    data = payload.encode(value)
    assert payload.decode(data) == ({} if value is None else value)
    assert payload.check(data) is data


def test_it_is_compact_utf8() -> None:
    assert payload.encode({"a": [1, 2.0, None, True], "é": "😀"}) == '{"a":[1,2.0,null,true],"é":"😀"}'.encode()


def test_none_is_an_empty_object() -> None:
    assert payload.encode(None) == b"{}"


@pytest.mark.parametrize("filling", ["a", "é", "😀"])
def test_the_limit_is_counted_in_bytes_and_exact(filling: str) -> None:
    width = len(filling.encode())
    fits = filling * ((payload.MAX_PAYLOAD - 2) // width)
    fits += "a" * (payload.MAX_PAYLOAD - 2 - len(fits.encode()))
    assert len(payload.encode(fits)) == 32_768
    with pytest.raises(PayloadTooLargeError, match=r"32769.*32768"):
        payload.encode(fits + "a")
    with pytest.raises(PayloadTooLargeError, match=r"32769.*32768"):
        payload.check(json.dumps(fits + "a", ensure_ascii=False).encode())


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        Decimal("1.5"),
        uuid4(),
        datetime.now(UTC),
        b"bytes",
        {1},
        (1, 2),
        Colour.RED,
        Number.ONE,
        "\ud800",
        pytest.param(10**4301, id="huge"),
        object(),
        type("Sub", (dict,), {})(),
        type("Sub", (list,), {})(),
        type("Sub", (int,), {})(3),
    ],
)
def test_what_json_cannot_keep_is_refused_with_its_path(value: object) -> None:
    with pytest.raises(PayloadInvalidError) as caught:
        payload.encode({"outer": {"inner": [0, value]}})
    assert caught.value.path == "$.outer.inner[1]"
    assert "$.outer.inner[1]" in str(caught.value)


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"k", Colour.RED])
def test_keys_that_are_not_text_are_refused_since_they_would_merge(key: object) -> None:
    with pytest.raises(PayloadInvalidError, match="text keys only") as caught:
        payload.encode({"a": {"b": {key: 1}}})
    assert caught.value.path == "$.a.b"


def test_a_lone_surrogate_in_a_key_is_refused() -> None:
    with pytest.raises(PayloadInvalidError, match="surrogate"):
        payload.encode({"a": {"\udfff": 1}})


def test_a_cycle_and_too_deep_a_nesting_are_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    deep: object = 0
    for _ in range(101):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(PayloadInvalidError, match="nested deeper than 100"):
            payload.encode(value)
    assert isinstance(deep, list)
    assert payload.check(payload.encode(deep[0]))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"a":1,"a":2}', "repeats the key 'a'"),
        (b'{"x":[{"a":1,"\\u0061":2}]}', "repeats the key"),
        (b"1e400", "beyond what a float holds"),
        (b"-1e400", "beyond what a float holds"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
        (b"[" * 16_384, "nested deeper|isn't JSON"),
        (b"[" * 101 + b"]" * 101, "nested deeper than 100"),
        (b"9" * 4301, "4300 digits"),
        (b"-" + b"9" * 4301, "4300 digits"),
        (b"\xff\xfe", "isn't UTF-8"),
        ('"é"'.encode("latin1"), "isn't UTF-8"),
        ('{"a":1}'.encode("utf-16"), "isn't UTF-8"),
        (b"\xef\xbb\xbf{}", "isn't JSON"),
        (b"", "isn't JSON"),
        (b"{}x", "isn't JSON"),
        (b"{'a':1}", "isn't JSON"),
    ],
)
def test_raw_bytes_are_refused_for_the_same(data: bytes, reason: str) -> None:
    with pytest.raises(PayloadInvalidError, match=reason):
        payload.check(data)


@pytest.mark.parametrize("data", ["{}", bytearray(b"{}"), memoryview(b"{}"), None, {}])
def test_a_raw_payload_is_bytes(data: object) -> None:
    with pytest.raises(PayloadInvalidError, match="must be bytes"):
        payload.check(data)


@pytest.mark.parametrize(
    "data", [b"1.0", b"9007199254740993", b"[]", b"{}", b'"\\u0000"', b" { } ", b"9" * 4300, b"null"]
)
def test_raw_bytes_that_are_json_are_returned_unchanged(data: bytes) -> None:
    assert payload.check(data) is data


def test_random_bytes_are_accepted_or_refused_but_never_escape() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a random test prints its seed
    source = random.Random(seed)
    for _ in range(2000):
        data = bytes(source.choices(b'{}[]",:0123456789eE+-.truefalsn\\u\xc3\xa9 ', k=source.randrange(20)))
        try:
            payload.check(data)
        except PayloadInvalidError:
            continue
        json.loads(data)
