"""The text of an error as it is stored (P4)."""

from __future__ import annotations

import pytest

from hesape.error_text import MAX_ERROR, error_text


def raised(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301 - only a raised error has a traceback
    except BaseException as caught:  # noqa: BLE001 - any
        return caught


def test_it_is_class_and_message_a_blank_line_and_the_traceback() -> None:
    lines = error_text(raised(ValueError("no such invoice"))).split("\n")
    assert lines[:3] == ["ValueError: no such invoice", "", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: no such invoice"


@pytest.mark.parametrize("filling", ["x", "é", "😀"])
def test_over_16_kib_the_first_line_and_the_tail_stay_cut_on_a_character(filling: str) -> None:
    text = error_text(f"first line\n{filling * 2_000_000}\nthe very end")
    assert MAX_ERROR - 8 < len(text.encode()) <= MAX_ERROR
    assert text.startswith("first line\n")
    assert text.endswith("\nthe very end")


def test_a_first_line_of_2_mb_is_cut_too() -> None:
    text = error_text(raised(ValueError("é" * 1_000_000)))
    assert len(text.encode()) <= MAX_ERROR
    assert text.startswith("ValueError: é")


def test_nul_and_surrogates_are_escaped() -> None:
    assert error_text("a\0b\ud800c") == "a\\x00b\\ud800c"


def test_an_exception_that_cannot_be_read_still_has_its_class() -> None:
    class Unreadable(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("really")

    assert error_text(raised(Unreadable())).startswith("Unreadable: <its message could not be read: RuntimeError>")


def test_a_chain_of_five_hundred_is_no_problem() -> None:
    error: BaseException = ValueError("0")
    for number in range(500):
        following = ValueError(str(number))
        following.__cause__ = error
        error = raised(following)
    assert len(error_text(error).encode()) <= MAX_ERROR
