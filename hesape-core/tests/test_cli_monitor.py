from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hesape import Queue, plugins
from hesape.errors import StoreUnavailableError
from hesape.events import Event, QueueBusy
from hesape.records import Counts

Hesape = Callable[..., Any]
PUSH = ("push", "x", "{}", "--tenant", "acme", "--action", "x")


class Observer:
    def __init__(self) -> None:
        self.busy: list[QueueBusy] = []

    @plugins.hookimpl
    def hesape_event(self, event: Event) -> None:
        if isinstance(event, QueueBusy):
            self.busy.append(event)


@pytest.fixture
def observer() -> Iterator[Observer]:
    found = Observer()
    remove = plugins.add_observer(found)
    yield found
    remove()


def test_a_queue_at_the_limit_is_busy_and_observers_are_told_once(hesape: Hesape, observer: Observer) -> None:
    hesape(*PUSH)
    hesape(*PUSH, "--delay", "1h")
    ran = hesape("monitor", "default", "--max", "2")
    assert ran.code == 1
    assert [line.split() for line in ran.out.splitlines() if "default" in line] == [
        ["default:default", "1", "1", "0", "2", "busy"]
    ]
    assert observer.busy == [QueueBusy(connection="default", queue="default", size=2)]


def test_a_queue_under_the_limit_is_not_and_nobody_is_told(hesape: Hesape, observer: Observer) -> None:
    hesape(*PUSH)
    ran = hesape("monitor", "default", "--max", "2")
    assert ran.code == 0
    assert "busy" not in ran.out
    assert hesape("monitor", "default").code == 0
    assert observer.busy == []


def test_several_queues_of_several_connections_are_looked_at_once_each(
    hesape: Hesape, observer: Observer, tmp_path: Path
) -> None:
    (tmp_path / "hesape.toml").write_text(
        "default = 'a'\n[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = 'sqlite:///b.db'"
    )
    hesape(*PUSH, "--queue", "b:high")
    ran = hesape("monitor", "default", "b:high", ":default", "--max", "1", "--json")
    assert ran.code == 1
    quiet = {"connection": "a", "queue": "default", "pending": 0, "delayed": 0, "reserved": 0, "size": 0, "busy": False}
    busy = {"connection": "b", "queue": "high", "pending": 1, "delayed": 0, "reserved": 0, "size": 1, "busy": True}
    assert ran.json == {"max": 1, "busy": True, "queues": [quiet, busy]}
    assert [event.queue for event in observer.busy] == ["high"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "Missing argument '[CONNECTION:]QUEUE...'"),
        (("default", "--max", "0"), "Invalid value for '--max': 0 is not in the range x>=1"),
        (("default", "--every", "0"), "--every 0: expected a time above 0"),
    ],
)
def test_wrong_usage(hesape: Hesape, argv: tuple[str, ...], message: str) -> None:
    ran = hesape("monitor", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"error[usage]: {message} (see hesape monitor --help)\n"


def test_with_every_it_looks_until_interrupted_and_tells_when_a_queue_becomes_busy(
    hesape: Hesape, observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) in {1, 4}:  # busy from the second look to the third, and again from the fifth
            hesape(*PUSH)
        if len(slept) == 3:
            hesape("clear", "default", "--force")
        if len(slept) == 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert hesape("monitor", "default", "--max", "1", "--every", "5m").code == 1
    assert slept == [300.0] * 6
    assert [event.size for event in observer.busy] == [1, 1]


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of connections whose store can't be reached."""
    names: set[str] = set()
    counts = Queue.counts

    def asked(queue: Queue, name: str) -> Counts:
        if queue.name in names:
            message = "nobody listens"
            raise StoreUnavailableError(message)
        return counts(queue, name)

    monkeypatch.setattr(Queue, "counts", asked)
    return names


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((), "error[store-unavailable]: b: nobody listens"),
        (
            ("--json",),
            '{"error": {"code": "store-unavailable", "message": "b: nobody listens", "retryable": true}}',
        ),
    ],
)
def test_with_every_an_outage_is_reported_and_what_was_busy_before_is_not_told_again(
    hesape: Hesape,
    observer: Observer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    away: set[str],
    options: tuple[str, ...],
    error: str,
) -> None:
    (tmp_path / "hesape.toml").write_text(
        "default = 'a'\n[connections.a]\nurl = 'sqlite:///a.db'\n[connections.b]\nurl = 'sqlite:///b.db'"
    )
    hesape(*PUSH, "--queue", "b:default")
    steps = iter([lambda: away.add("b"), lambda: away.add("a"), away.clear])

    def sleep(_: float) -> None:
        if (step := next(steps, None)) is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(time, "sleep", sleep)
    ran = hesape("monitor", "b:default", "b:high", "default", "--max", "1", "--every", "1m", *options)
    assert ran.code == 1
    assert ran.err.splitlines() == [error, error, error.replace("b: nobody", "a: nobody")]
    assert [event.connection for event in observer.busy] == ["b"]
    if options:
        looks = [json.loads(line) for line in ran.out.splitlines()]
        assert [[row["connection"] for row in look["queues"]] for look in looks] == [
            ["b", "b", "a"],
            ["a"],
            ["b", "b", "a"],
        ]


def test_without_every_an_outage_is_a_failure(hesape: Hesape, away: set[str]) -> None:
    away.add("default")
    ran = hesape("monitor", "default")
    assert (ran.code, ran.out, ran.err) == (1, "", "error[store-unavailable]: nobody listens\n")


def test_each_look_is_a_line_of_json_at_once(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "hesape", "monitor", "default", "--every", "50ms", "--json"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=tmp_path) as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait() == 0
    assert [look["busy"] for look in looks] == [False] * 3


def test_what_keeps_nothing_can_not_be_monitored(hesape: Hesape, tmp_path: Path) -> None:
    (tmp_path / "hesape.toml").write_text("[connections.a]\ndriver = 'null'")
    ran = hesape("monitor", "default")
    assert ran.code == 1
    assert ran.err.startswith("error[unsupported]: the driver 'null' keeps nothing and can't count jobs")
