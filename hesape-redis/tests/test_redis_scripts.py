from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from hesape.errors import StoreRefusedError, StoreUnavailableError
from hesape.records import new_token
from hesape_redis.driver import RedisDriver
from hesape_redis.scripts import ALL, load
from hesape_redis.testing import PrivateRedis


@pytest.fixture
def counted(client: Any) -> Callable[[Callable[[], object]], dict[str, int]]:
    """How often each command was received while a call was made; commands inside scripts don't count."""

    def count(call: Callable[[], object]) -> dict[str, int]:
        def now() -> dict[str, int]:
            found = client.info("commandstats")
            return {name.removeprefix("cmdstat_"): value["calls"] for name, value in found.items()}

        before = now()
        call()
        after = now()
        return {name: after[name] - before.get(name, 0) for name in after if after[name] > before.get(name, 0)}

    return count


def test_only_a_push_is_refused_by_a_full_store() -> None:
    heads = {name: script.text.partition("\n")[0] for name, script in ALL.items()}
    assert all(head.startswith("#!lua") for head in heads.values())
    assert [name for name, head in heads.items() if "flags=" not in head] == ["push"]


def test_what_only_looks_says_so() -> None:
    looks = {name for name, script in ALL.items() if not script.writes}
    assert looks == {"counts", "failed", "find", "look", "oldest_pending", "queues", "read_flag", "workers"}


def test_no_script_looks_into_what_it_stores() -> None:
    for script in ALL.values():
        assert "cjson" not in script.text
        assert "cmsgpack" not in script.text


def test_every_key_is_made_from_the_one_that_is_declared() -> None:
    for script in ALL.values():
        assert script.text.count("KEYS") == script.text.count("KEYS[1]")


def test_parts_stand_in_place_of_the_line_that_names_them() -> None:
    text = load("lock").text
    assert "-- parts:" not in text
    assert "local function live(" in text


@pytest.mark.parametrize("how", ["SYNC", "ASYNC"])
def test_scripts_are_sent_again_after_they_were_flushed(desk: Any, client: Any, how: Any) -> None:
    for n in range(3):
        client.script_flush(how)
        desk.push({"n": n})
        client.script_flush(how)
        desk.take().delete()


def test_a_script_that_was_forgotten_costs_one_more_round_trip_once(desk: Any, client: Any, counted: Any) -> None:
    desk.push()
    client.script_flush()
    found = counted(desk.push)
    assert (found["eval"], found["evalsha"]) == (1, 1)
    assert "eval" not in counted(desk.push)


def test_each_operation_is_one_round_trip(desk: Any, counted: Any) -> None:
    driver = desk.driver

    def all_of_them() -> None:
        desk.push()
        desk.bulk(300)
        found = desk.claim(200, worker="w")
        assert len(found.rows) == 200

    all_of_them()
    found = counted(all_of_them)
    assert found.get("evalsha") == 3
    assert "eval" not in found
    driver.retire("w")
    driver.clear("default")


def test_a_bulk_of_ten_thousand_is_one_step(desk: Any, counted: Any) -> None:
    desk.bulk(1)
    found = counted(lambda: desk.bulk(10_000))
    assert found["evalsha"] == 1
    assert desk.queue.counts().pending == 10_001
    assert desk.numbers() == [0, *range(10_000)]


def test_a_repeated_bulk_of_ten_thousand_stores_nothing_new(desk: Any) -> None:
    jobs = [desk.job({"n": n, "text": "x" * 1200}) for n in range(10_000)]
    desk.queue.bulk(desk.grant, jobs[:9_000])
    desk.queue.bulk(desk.grant, jobs)
    assert desk.queue.counts().pending == 10_000
    assert desk.driver.clear("default") == 10_000


def test_settling_ten_thousand_at_once_is_possible(desk: Any) -> None:
    desk.bulk(9_000)
    found = desk.claim(9_000)
    assert len(found.rows) == 9_000


def test_long_lists_are_cut_in_parts(desk: Any) -> None:
    desk.bulk(9_500)
    jobs = [job for _ in range(10) for job in desk.queue.pop(n=1_000)]
    assert len(jobs) == 9_500
    assert len(desk.driver.extend(jobs, 120)[0]) == 9_500
    desk.driver.hand_back(jobs)
    assert desk.queue.counts().pending == 9_500
    jobs = [job for _ in range(10) for job in desk.queue.pop(n=1_000)]
    assert desk.driver.delete_jobs(jobs) == []
    assert desk.queue.counts().size == 0


def test_an_older_server_is_told_apart(monkeypatch: pytest.MonkeyPatch, driver: RedisDriver) -> None:
    """Servers before 7.0 take the first line of a script for an error of its syntax."""
    broken = load("pause")
    monkeypatch.setitem(ALL, "pause", type(broken)("pause", "\n" + broken.text, "0" * 40, True))  # noqa: FBT003
    with pytest.raises(StoreRefusedError, match=r"needs Redis 7\.0"):
        driver.pause("default")


def test_an_error_in_a_script_is_a_refusal_with_its_cause(monkeypatch: pytest.MonkeyPatch, driver: RedisDriver) -> None:
    monkeypatch.setitem(ALL, "pause", type(ALL["pause"])("pause", "#!lua\nerror('broken')", "0" * 40, True))  # noqa: FBT003
    with pytest.raises(StoreRefusedError, match="broken") as caught:
        driver.pause("default")
    assert isinstance(caught.value.__cause__, redis.ResponseError)
    assert driver.queues() == []


def test_a_server_that_is_busy_with_a_script_wrote_nothing(
    own_server: PrivateRedis, opened: Any, at: Any, poll: Any
) -> None:
    desk = at(opened(own_server.url))
    desk.push()
    with redis.Redis.from_url(own_server.url) as client:
        client.config_set("busy-reply-threshold", 10)
        connection = client.connection_pool.get_connection()
        connection.send_command("EVAL", "while true do end", 0)
        try:
            poll(lambda: _is_busy(desk.driver), "the script takes long")
            with pytest.raises(StoreUnavailableError, match="BUSY"):
                desk.driver.pause("other")
        finally:
            client.execute_command("SCRIPT", "KILL")
            connection.disconnect()
    poll(lambda: not _is_busy(desk.driver), "the script ends")
    assert desk.driver.queues() == ["default"]


def _is_busy(driver: RedisDriver) -> bool:
    try:
        driver.now()
    except StoreUnavailableError:
        return True
    return False


def test_a_claim_of_an_unknown_worker_and_token_is_no_error(driver: RedisDriver) -> None:
    assert driver.retire("nobody") == 0
    assert driver.rescue() == 0
    assert driver.extend([], 10) == ([], [])
    driver._hand_back([])
    assert driver._delete([], repeat=False, tx=None) == []
    key = ("0" * 36, new_token())
    assert driver._extend([key], 10) == [None]  # type: ignore[list-item]
