"""The settings that travel with a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hesape.attributes import Attributes
from hesape.errors import AttributesInvalidError, NameInvalidError, TimeInvalidError


def test_nothing_set_is_an_empty_object() -> None:
    assert Attributes().encode() == "{}"


def test_what_is_set_comes_back() -> None:
    there = Attributes(
        tries=-1,
        backoff=(1, timedelta(seconds=10), 0),
        timeout=timedelta(minutes=1),
        max_exceptions=2,
        retry_until=datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
        fail_on_timeout=False,
        unique_for=3600,
        unique_key="käse",
        queue="high",
        wraps="Listener",
    )
    import json

    assert Attributes.from_dict(json.loads(there.encode())) == there
    assert there.retry_until == datetime(2030, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)


def test_a_field_of_a_newer_version_is_left_out() -> None:
    assert Attributes.from_dict({"tries": 2, "colour": "red"}) == Attributes(tries=2)


@pytest.mark.parametrize(
    ("failures", "delay"), [(-1, 1.0), (0, 1.0), (1, 1.0), (2, 0.0), (3, 60.0), (4, 60.0), (10**9, 60.0)]
)
def test_the_backoff_counts_failures_from_one_and_repeats_its_last_entry(failures: int, delay: float) -> None:
    assert Attributes(backoff=(1, 0, 60)).backoff_for(failures) == delay


def test_an_empty_backoff_leaves_it_to_the_worker() -> None:
    assert Attributes().backoff_for(1) is None
    assert Attributes(backoff=0).backoff_for(1) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"backoff": (-1,)},
        {"backoff": float("nan")},
        {"backoff": (float("inf"),)},
        {"backoff": ("1",)},
        {"timeout": float("nan")},
        {"timeout": "5"},
        {"tries": 1.5},
        {"tries": True},
        {"tries": 2**31},
        {"max_exceptions": -1},
        {"unique_for": -1},
        {"fail_on_timeout": 1},
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(AttributesInvalidError):
        Attributes(**wrong)  # type: ignore[arg-type]


def test_a_naive_deadline_is_refused() -> None:
    with pytest.raises(TimeInvalidError, match="no time zone"):
        Attributes(retry_until=datetime(2030, 1, 1))  # noqa: DTZ001 - naive is the test


def test_unprintable_texts_are_refused() -> None:
    with pytest.raises(NameInvalidError):
        Attributes(unique_key="a\0b")


def test_encoded_attributes_have_a_limit() -> None:
    with pytest.raises(AttributesInvalidError, match="4096"):
        Attributes(backoff=(1.5,) * 2000).encode()


def test_the_jobs_own_win_over_the_registered_field_by_field() -> None:
    own = Attributes(tries=2, fail_on_timeout=False)
    registered = Attributes(tries=9, timeout=5, fail_on_timeout=True, queue="slow")
    assert own.over(registered) == Attributes(tries=2, timeout=5, fail_on_timeout=False, queue="slow")
    assert Attributes().over(registered) == registered
    assert own.over(Attributes()) == own
