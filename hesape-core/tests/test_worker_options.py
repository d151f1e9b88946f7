from __future__ import annotations

import json
from collections import Counter

import pytest

from hesape.errors import ArgumentInvalidError, NameInvalidError
from hesape.worker.options import QueueOrder, Settle, WorkerOptions, read_queues


def test_queues_without_weights_are_drained_strictly_in_order() -> None:
    queues, weights = read_queues("high,default,low")
    order = QueueOrder(WorkerOptions(queues=queues, weights=weights))
    assert {order.next() for _ in range(10)} == {("high", "default", "low")}


def test_weights_say_how_often_a_queue_comes_first() -> None:
    queues, weights = read_queues("high=3,low=1,other")
    order = QueueOrder(WorkerOptions(queues=queues, weights=weights))
    first = Counter(order.next()[0] for _ in range(50))
    assert first == {"high": 30, "low": 10, "other": 10}


def test_every_claim_asks_every_queue() -> None:
    order = QueueOrder(WorkerOptions(queues=("a", "b"), weights=(5, 1)))
    assert all(sorted(order.next()) == ["a", "b"] for _ in range(12))


@pytest.mark.parametrize("text", ["a=0", "a=-1", "a=x", "a=", "a=1001", "a=2,a=3", "a,,b", "a,"])
def test_queues_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ArgumentInvalidError):
        read_queues(text)


def test_a_queue_whose_name_no_store_takes_is_refused() -> None:
    with pytest.raises(NameInvalidError):
        read_queues("good,not good")


def test_no_queue_is_the_default_one() -> None:
    assert read_queues("") == (("default",), ())
    assert WorkerOptions(queues=()).queues == ("default",)


@pytest.mark.parametrize(
    "wrong",
    [
        {"concurrency": 0},
        {"processes": 0},
        {"lease_s": 0.4},
        {"sleep_s": 0},
        {"grace_s": -1},
        {"prefetch": -1},
        {"rest_s": -1},
        {"settle": "all"},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ArgumentInvalidError):
        WorkerOptions(**wrong)  # type: ignore[arg-type]


def test_weights_must_fit_the_queues() -> None:
    with pytest.raises(ArgumentInvalidError):
        WorkerOptions(queues=("a", "b"), weights=(1,))


def test_options_reach_a_worker_process_unchanged() -> None:
    options = WorkerOptions(queues=("a", "b"), weights=(3, 1), timeout_s=1.5, prefetch=7, once=True)
    assert WorkerOptions.from_plain(json.loads(json.dumps(options.plain()))) == options


def test_options_reach_a_worker_process_as_they_are() -> None:
    options = WorkerOptions(queues=("a", "b"), weights=(2, 1), settle="each", lease_s=5)
    assert WorkerOptions.from_plain(json.loads(json.dumps(options.plain()))) == options
    assert options.settle is Settle.EACH
