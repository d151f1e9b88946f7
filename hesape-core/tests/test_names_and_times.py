"""Names and times are checked once, in core (P5, T1, T3)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from hesape import names, times
from hesape.errors import IdInvalidError, NameInvalidError, TimeInvalidError

NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - naive is the test


@pytest.mark.parametrize("word", ["a", "A.b_c:d/e-f", "0" * 128, "Reports"])
def test_queues_and_actions_of_the_allowed_characters_pass(word: str) -> None:
    assert names.check_queue(word) == names.check_action(word) == word


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("a b", "' '"),
        ("a;--", "';'"),
        ("a'b", '"\'"'),
        ('a"b', "'\"'"),
        ("a\\b", "'\\\\\\\\'"),
        ("a%b", "'%'"),
        ("a{b}", "'{'"),
        ("a\n", "\\\\n"),
        ("é", "xe9"),
        ("😀", "1f600"),
        ("a" * 129, "129 characters"),
        ("", "0 characters"),
        (None, "None"),
        (b"a", "b'a'"),
    ],
)
def test_others_are_refused_with_the_offending_character(word: object, found: str) -> None:
    for check in (names.check_queue, names.check_action):
        with pytest.raises(NameInvalidError, match=found):
            check(word)


@pytest.mark.parametrize("text", ["a", "Käse 😀", "x" * 255, "SendInvoice@handle"])
def test_texts_are_printable_and_at_most_255_characters(text: str) -> None:
    assert names.check_text("job name", text) == text


@pytest.mark.parametrize("text", ["", "x" * 256, "a\0", "a\nb", "\u202e", "\ud800", None, 5])
def test_other_texts_are_refused(text: object) -> None:
    with pytest.raises(NameInvalidError, match="job name"):
        names.check_text("job name", text)


def test_an_id_is_the_canonical_text_of_a_uuid() -> None:
    some = uuid.uuid4()
    assert names.check_id(some) == names.check_id(str(some)) == str(some)
    for wrong in (str(some).upper(), some.hex, f"{{{some}}}", f"urn:uuid:{some}", "", None, 5, f"{some}\n"):
        with pytest.raises(IdInvalidError):
            names.check_id(wrong)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("America/New_York")),
        datetime(2026, 1, 1, 12, tzinfo=ZoneInfo("America/New_York")),
        datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=0),
        datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=1),
        datetime(2026, 1, 1, 12, 0, 0, 1, tzinfo=timezone(timedelta(hours=2))),
        datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=UTC),
    ],
)
def test_an_aware_moment_keeps_its_instant_to_the_microsecond(moment: datetime) -> None:
    assert times.from_us(times.to_us(moment)) == moment.astimezone(UTC)


def test_both_folds_of_a_repeated_hour_are_an_hour_apart() -> None:
    first, second = (datetime(2026, 11, 1, 1, 30, tzinfo=ZoneInfo("America/New_York"), fold=fold) for fold in (0, 1))
    assert times.to_us(second) - times.to_us(first) == 3_600_000_000


@pytest.mark.parametrize(
    "moment", [NAIVE, datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "2026-01-01", 0, None]
)
def test_what_is_naive_or_no_moment_is_refused(moment: object) -> None:
    with pytest.raises(TimeInvalidError):
        times.to_us(moment)  # type: ignore[arg-type]


def test_a_delay_is_seconds_or_a_timedelta_and_negative_means_now() -> None:
    assert times.delay_us(1.5) == times.delay_us(timedelta(seconds=1.5)) == 1_500_000
    assert times.delay_us(-3) == times.delay_us(timedelta(days=-1)) == 0


@pytest.mark.parametrize("delay", [float("nan"), float("inf"), 1e12, "5", None, True, timedelta.max])
def test_other_delays_are_refused(delay: object) -> None:
    with pytest.raises(TimeInvalidError):
        times.delay_us(delay)  # type: ignore[arg-type]
