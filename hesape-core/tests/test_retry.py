from __future__ import annotations

import pytest

from hesape import retry
from hesape.errors import OutcomeUnknownError, SchemaError, StoreBusyError, StoreRefusedError, StoreUnavailableError


class Call:
    """A call that raises one error after the other, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.repeats: list[bool] = []

    def __call__(self, repeat: bool) -> str:  # noqa: FBT001 - the shape of insist
        self.repeats.append(repeat)
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


def test_a_call_is_told_that_it_repeats_only_after_an_unknown_outcome() -> None:
    call = Call(StoreUnavailableError(), OutcomeUnknownError(), StoreBusyError())
    assert retry.insist(call) == "answer"
    assert call.repeats == [False, False, True, True]


@pytest.mark.parametrize("refusal", [StoreRefusedError, SchemaError])
def test_a_refusal_isnt_repeated(refusal: type[Exception]) -> None:
    call = Call(refusal())
    with pytest.raises(refusal):
        retry.insist(call)
    assert call.repeats == [False]


@pytest.mark.parametrize("refusal", [StoreRefusedError, SchemaError])
def test_an_unknown_outcome_stays_unknown_when_its_repeat_is_refused(refusal: type[Exception]) -> None:
    with pytest.raises(OutcomeUnknownError) as raised:
        retry.insist(Call(OutcomeUnknownError("sent"), refusal()))
    assert isinstance(raised.value.__cause__, refusal)


@pytest.mark.parametrize(
    ("error", "written"),
    [
        (StoreUnavailableError(), False),
        (StoreBusyError(), False),
        (StoreRefusedError(), False),
        (SchemaError(), False),
        (OutcomeUnknownError(), True),
        (RuntimeError(), True),
        (KeyboardInterrupt(), True),
    ],
)
def test_what_isnt_surely_unwritten_may_be_written(error: BaseException, written: bool) -> None:  # noqa: FBT001
    assert retry.may_be_written(error) == written
