"""Errors are part of the interface: a code, a default message, a place in the drawing, and a life after pickling."""

from __future__ import annotations

import inspect
import pickle

import pytest

import hesape
from hesape import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


def test_codes_are_one_of_a_kind_and_stable_words() -> None:
    codes = [error.code for error in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all(code.replace("-", "").isalpha() and code == code.lower() for code in codes)


@pytest.mark.parametrize("error", CLASSES)
def test_each_is_drawn_documented_and_public(error: type[hesape.HesapeError]) -> None:
    assert error.__name__ in (errors.__doc__ or "")
    assert str(error()) == (inspect.getdoc(error) or "").partition("\n")[0]
    assert getattr(hesape, error.__name__) is error


@pytest.mark.parametrize("error", CLASSES)
def test_each_survives_pickling_with_what_it_carries(error: type[hesape.HesapeError]) -> None:
    raised = error("what was found")
    raised.index = 7
    if isinstance(raised, errors.PayloadInvalidError):
        raised.path = "$.a"
    back = pickle.loads(pickle.dumps(raised))  # noqa: S301 - our own bytes
    assert (type(back), str(back), vars(back)) == (error, "what was found", vars(raised))


def test_what_is_called_a_value_error_is_one() -> None:
    assert issubclass(errors.InvalidError, ValueError)
    assert issubclass(errors.ArgumentInvalidError, errors.InvalidError)


def test_an_interruption_is_none_of_the_errors_that_clients_take_for_a_broken_socket() -> None:
    assert not issubclass(errors.JobTimeoutError, OSError)


def test_only_what_a_retry_can_mend_says_so() -> None:
    assert {error.__name__ for error in CLASSES if error.retryable} == {
        "LockHeldError",
        "OutcomeUnknownError",
        "StoreBusyError",
        "StoreUnavailableError",
        "UnreadableError",
    }
