"""The sweep on a real server's protocol: the driver as it is passes, and each lie planted in it is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from hesape.driver import Driver, Fact
from hesape.drivers.memory.testing import MemoryHarness
from hesape.errors import OutcomeUnknownError, StoreUnavailableError
from hesape.records import new_token
from hesape_conformance import catalogue
from hesape_conformance.catalogue import Depth
from hesape_conformance.engine import Engine, Outcome, Verdict
from hesape_conformance.sweep.operations import OPERATIONS
from hesape_redis.testing import RedisHarness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Planted(RedisHarness):
    """A harness whose drivers are changed before they are used through the relay."""

    plant: Callable[[Any], None] | None = None

    def open(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> Driver:
        driver = super().open(namespace, endpoint=endpoint)
        if endpoint is not None and self.plant is not None:
            self.plant(driver)
        return driver


@pytest.fixture(scope="module")
def harness() -> Iterator[Planted]:
    found = Planted()
    try:
        found.start()
        yield found
    finally:
        found.stop()


def cut(harness: Planted, operation: str, plant: Callable[[Any], None] | None = None) -> Outcome:
    harness.plant = plant
    [check] = [check for check in catalogue.everything()["sweep"].checks if check.name == operation]
    return Engine(harness, depth=Depth.QUICK).check(check)


def replaced(driver: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    object.__setattr__(driver, name, around(getattr(driver, name)))


def test_it_covers_whatever_changes_a_store() -> None:
    looks = {"counts", "failed", "find", "oldest_pending", "paused", "queues", "read_flag", "workers"}
    around = {"close", "migrations", "now", "ping", "schema_version", "wait", "checkup"}
    others = {
        "retire": "as rescue",
        "increment": "not harmless twice: core makes it once and tells the unknown outcome",
        "erase_flag": "as unlock",
    }
    abstract = set(Driver.__abstractmethods__) - looks - around - others.keys()
    renamed = {"store": "push", "reserve": "pop"}
    names = {renamed.get(name.lstrip("_"), name.lstrip("_")) for name in abstract}
    assert names <= {operation.name for operation in OPERATIONS}


@pytest.mark.parametrize("operation", ["push", "pop_with_deletions", "release", "retry", "lock"])
def test_the_driver_as_it_is_passes_and_the_cuts_are_counted(harness: Planted, operation: str) -> None:
    outcome = cut(harness, operation)
    assert outcome.verdict is Verdict.PASSED, outcome.detail
    assert int(outcome.detail.removesuffix(" cuts")) >= 2


def test_a_store_without_a_network_is_outside_its_facts() -> None:
    part = catalogue.everything()["sweep"]
    assert {check.facts for check in part.checks} == {frozenset({Fact.NETWORKED})}
    assert Engine(MemoryHarness(), depth=Depth.QUICK).rule(part).verdict is Verdict.OUTSIDE


def says_nothing_was_written(driver: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return real(*arguments, **options)
            except OutcomeUnknownError as error:
                raise StoreUnavailableError(str(error)) from error.__cause__

        return call

    replaced(driver, "_store", around)


def says_it_is_done(driver: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return real(*arguments, **options)
            except OutcomeUnknownError:
                return True

        return call

    replaced(driver, "_release", around)


def lets_the_client_s_error_out(driver: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return real(*arguments, **options)
            except OutcomeUnknownError as error:
                raise error.__cause__ or error from None

        return call

    replaced(driver, "_fail", around)


def claims_under_another_token(driver: Any) -> None:
    replaced(driver, "reserve", lambda real: lambda claim: real(claim._replace(token=new_token())))


def knows_no_repeat(driver: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda keys, *, repeat, tx: real(keys, repeat=False, tx=tx)

    replaced(driver, "_delete", around)


def never_recovers(driver: Any) -> None:
    broken: list[OutcomeUnknownError] = []

    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                if not broken:
                    return real(*arguments, **options)
            except OutcomeUnknownError as error:
                broken.append(error)
            raise StoreUnavailableError from broken[0]

        return call

    replaced(driver, "pause", around)


def spends_an_attempt_at_each_repeat(driver: Any) -> None:
    def around(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(key: Any, **options: Any) -> Any:
            return real(key, **{**options, "spent": True})

        return call

    replaced(driver, "_release", around)


@pytest.mark.parametrize(
    ("operation", "plant", "words"),
    [
        ("push", says_nothing_was_written, "store-unavailable, and the store is as after; expected as before"),
        ("release", says_it_is_done, "returned, and the store is as before; expected as after"),
        ("fail", lets_the_client_s_error_out, "cut before the request arrives (1)"),
        ("pop", claims_under_another_token, "done again, the claim returns 0 jobs, expected 2"),
        ("delete", knows_no_repeat, "done again, 1 deletions of 1 are called lost"),
        ("pause", never_recovers, "of pause, cut before the request arrives (1)"),
        ("release_unspent_for_later", spends_an_attempt_at_each_repeat, "scheduled after 1"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_lie_is_found(harness: Planted, operation: str, plant: Callable[[Any], None], words: str) -> None:
    outcome = cut(harness, operation, plant)
    assert outcome.verdict is Verdict.FAILED
    assert words in str(outcome.error)
