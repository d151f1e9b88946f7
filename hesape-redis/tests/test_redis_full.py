"""Stores that take no more: full, read-only, loading, unable to write to their disk."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import hesape
from hesape.errors import StoreRefusedError, StoreUnavailableError
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis

LARGE = "x" * 30_000


@pytest.fixture
def admin(own_server: PrivateRedis) -> Iterator[Any]:
    with redis.Redis.from_url(own_server.url) as client:
        yield client


@pytest.fixture
def own_desk(own_server: PrivateRedis, opened: Callable[..., RedisDriver], at: Any) -> Any:
    return at(opened(own_server.url))


@contextlib.contextmanager
def full(admin: Any) -> Iterator[None]:
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 1_000)
    yield
    admin.config_set("maxmemory", 0)


def test_a_push_into_a_full_store_says_so_and_stores_nothing(own_desk: Any, admin: Any) -> None:
    own_desk.bulk(3)
    with full(admin):
        for push in (own_desk.push, lambda: own_desk.push(LARGE), lambda: own_desk.bulk(100)):
            with pytest.raises(StoreRefusedError, match="memory is full"):
                push()
        assert own_desk.queue.counts().size == 3
    own_desk.push({"n": 3})
    assert own_desk.numbers() == [0, 1, 2, 3]


def test_a_full_store_can_still_be_drained_and_loses_nothing(own_desk: Any, admin: Any) -> None:
    own_desk.bulk(7)
    with full(admin):
        jobs = own_desk.queue.pop(n=6)
        jobs[0].release()
        jobs[1].release(0.01)
        jobs[2].last_error = "Boom: " + "y" * 10_000
        jobs[2].release(60)
        jobs[3].fail("Boom: " + "z" * 10_000)
        jobs[4].extend(120)
        jobs[5].delete()
        assert own_desk.driver.beat("w", 10_000_000, 60_000_000) == frozenset()
        assert own_desk.driver.lock("lock:a", "me", 10_000_000)
    [failed] = own_desk.queue.operator().failed()
    own_desk.queue.operator().retry(failed.id)
    own_desk.driver.hand_back([jobs[4]])
    counts = own_desk.queue.counts()
    assert (counts.pending + counts.delayed, counts.reserved, counts.failed) == (6, 0, 0)


def test_a_read_only_replica_refuses_and_can_still_be_looked_at(own_desk: Any, admin: Any) -> None:
    own_desk.push({"n": 0})
    admin.replicaof("127.0.0.1", 9)
    for call in (own_desk.push, own_desk.queue.pop, lambda: own_desk.driver.pause("default")):
        with pytest.raises(StoreRefusedError, match="replica"):
            call()
    assert own_desk.queue.counts().pending == 1
    assert own_desk.driver.queues() == ["default"]
    admin.replicaof("NO", "ONE")
    assert own_desk.numbers() == [0]


def test_a_server_without_enough_replicas_refuses(own_desk: Any, admin: Any) -> None:
    admin.config_set("min-replicas-to-write", 1)
    with pytest.raises(StoreRefusedError, match="replicas"):
        own_desk.push()
    admin.config_set("min-replicas-to-write", 0)
    own_desk.push({"n": 1})
    assert own_desk.numbers() == [1]


def test_a_replica_that_lost_its_master_is_unavailable_not_refusing(own_desk: Any, admin: Any) -> None:
    own_desk.push({"n": 0})
    admin.config_set("replica-serve-stale-data", "no")
    admin.replicaof("127.0.0.1", 9)
    with pytest.raises(StoreUnavailableError, match=r"(?i)MASTER ?DOWN"):
        own_desk.queue.counts()
    admin.replicaof("NO", "ONE")
    assert own_desk.numbers() == [0]


def test_a_policy_that_drops_keys_is_warned_of_once(
    own_server: PrivateRedis,
    admin: Any,
    opened: Callable[..., RedisDriver],
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lru")
    driver = opened(own_server.url)
    with caplog.at_level(logging.WARNING, logger="hesape_redis"):
        driver.ping()
        driver.beat("w", 1_000_000, 1_000_000)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["maxmemory-policy is allkeys-lru"]
    assert [finding.fine for finding in driver.checkup()] == [True, False]


def test_a_policy_that_drops_nothing_is_no_matter(driver: RedisDriver, caplog: pytest.LogCaptureFixture) -> None:
    driver.ping()
    driver.beat("w", 1_000_000, 1_000_000)
    driver.retire("w")
    assert caplog.records == []
    assert all(finding.fine for finding in driver.checkup())


@pytest.mark.parametrize(
    ("settings", "verdict", "words"),
    [
        (
            {"appendonly": "yes", "appendfsync": "always"},
            "fine",
            ["appendfsync always", "survives a crash", "power cut"],
        ),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "fine", ["appendfsync everysec", "except", "second"]),
        ({"appendonly": "yes", "appendfsync": "no"}, "to be seen to", ["appendfsync no", "may cost"]),
        ({"appendonly": "no", "save": "60 1"}, "to be seen to", ["snapshots alone", "set appendonly yes"]),
        ({"appendonly": "no", "save": ""}, "to be seen to", ["loses every job"]),
    ],
)
def test_what_the_server_may_lose_is_said_in_words(
    settings: dict[str, str],
    verdict: str,
    words: list[str],
    own_server: PrivateRedis,
    admin: Any,
    opened: Callable[..., RedisDriver],
) -> None:
    for name, value in settings.items():
        admin.config_set(name, value)
    found = opened(own_server.url).checkup()[0]
    assert found.fine is (verdict == "fine")
    assert all(word in found.text for word in words), found


def test_a_user_who_may_not_read_settings_gets_an_answer_all_the_same(
    own_server: PrivateRedis, admin: Any, opened: Callable[..., RedisDriver], prefix: str, at: Any
) -> None:
    admin.acl_setuser(
        "app",
        enabled=True,
        passwords=["+pw"],
        keys=[f"{prefix}*"],
        channels=[f"{prefix}*"],
        commands=["+@all", "-config"],
    )
    desk = at(opened(own_server.url.replace("redis://", "redis://app:pw@")))
    desk.push({"n": 1})
    assert desk.numbers() == [1]
    assert "can't be read" in desk.driver.checkup()[0].text


def test_a_user_without_the_keys_is_told_what_is_missing(
    own_server: PrivateRedis, admin: Any, opened: Callable[..., RedisDriver], at: Any
) -> None:
    admin.acl_setuser("app", enabled=True, passwords=["+pw"], keys=["other:*"], commands=["+@all"])
    desk = at(opened(own_server.url.replace("redis://", "redis://app:pw@")))
    with pytest.raises(StoreRefusedError, match="keys and channels of the prefix"):
        desk.push()
    assert hesape.StoreRefusedError.retryable is False
