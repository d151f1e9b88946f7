"""Clients that an application has already, and what the driver leaves alone of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hesape.errors import OutcomeUnknownError
from hesape_conformance.relay import Relay
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis

TEXT = "Grüße, 東京 🎉"


@pytest.fixture(params=[{}, {"decode_responses": True}, {"protocol": 3}, {"protocol": 3, "decode_responses": True}])
def lent(request: pytest.FixtureRequest, server: PrivateRedis, prefix: str) -> Iterator[tuple[RedisDriver, Any]]:
    with redis.Redis.from_url(server.url, **request.param) as client:
        driver = RedisDriver.of_client(client, prefix=prefix)
        yield driver, client
        driver.close()


def test_a_whole_life_through_a_ready_made_client_decoding_or_not(lent: tuple[RedisDriver, Any], at: Any) -> None:
    driver, _ = lent
    desk = at(driver)
    desk.push({"text": TEXT})
    job = desk.take()
    assert job.decode() == {"text": TEXT}
    job.last_error, job.exceptions = f"Boom: {TEXT}", 1
    job.release(0.001)
    while not (found := desk.queue.pop()):
        pass
    assert found[0].last_error == f"Boom: {TEXT}"
    found[0].fail(f"Boom: {TEXT}")
    [failed] = desk.queue.operator().failed()
    assert (failed.payload.decode(), failed.last_error) == (f'{{"text":"{TEXT}"}}', f"Boom: {TEXT}")
    desk.queue.operator().retry(failed.id)
    desk.take().delete()
    assert driver.beat("wörker", 10_000_000, 10_000_000) == frozenset()
    assert [row.worker for row in driver.workers()] == ["wörker"]
    driver.retire("wörker")
    driver.write_flag("flag:a", TEXT, None)
    assert driver.read_flag("flag:a") == TEXT
    assert driver.increment("counter:a", 2, 1_000_000)[0] == 2
    assert driver.queues() == []
    assert "Redis" in driver.ping()
    assert "appendfsync" in driver.checkup()[0].text


def test_it_wakes_through_a_ready_made_client_too(lent: tuple[RedisDriver, Any], at: Any) -> None:
    driver, _ = lent
    assert driver.wait(["default"], 0.01) is False
    at(driver).push()
    assert driver.wait(["default"], 5) is True


def test_a_lent_client_works_on_during_and_after_the_driver(
    lent: tuple[RedisDriver, Any], at: Any, prefix: str
) -> None:
    driver, client = lent
    at(driver).push()
    client.set(f"{prefix}own", "1")
    driver.close()
    assert str(client.get(f"{prefix}own")).strip("b'") == "1"
    assert at(driver).queue.counts().pending == 1


def test_a_client_that_repeats_by_itself_stores_a_job_once(server: PrivateRedis, prefix: str, at: Any) -> None:
    with Relay(("127.0.0.1", server.port)) as relay:
        client = redis.Redis(
            port=relay.endpoint[1],
            retry=Retry(NoBackoff(), 10),
            retry_on_error=[redis.ConnectionError, redis.TimeoutError],
        )
        with client:
            desk = at(RedisDriver.of_client(client, prefix=prefix))
            desk.push({"n": 0})
            pushes = _evaluated(server)
            relay.cut_at_reply(1)
            with pytest.raises(OutcomeUnknownError, match="no answer came"):
                desk.driver.increment("counter:a", 1, 60_000_000)
            assert relay.was_cut
            assert _evaluated(server) == pushes + 1
            assert desk.driver.increment("counter:a", 0, 60_000_000)[0] == 1
            desk.driver.close()


def _evaluated(server: PrivateRedis) -> int:
    with redis.Redis.from_url(server.url) as client:
        found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


def test_our_own_connections_repeat_nothing_and_decode_nothing(opened: Callable[..., RedisDriver]) -> None:
    connection = opened()._link.take()
    assert connection.retry._retries == 0
    assert connection.encoder.decode_responses is False
    connection.disconnect()
