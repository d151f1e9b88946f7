from __future__ import annotations

import pytest
import redis

from hesape_conformance import guard
from hesape_redis import testing


def test_with_its_append_only_file_what_was_stored_outlives_a_killed_server() -> None:
    with testing.PrivateRedis() as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", 42)
        server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("kept")
        server.start()
        assert client.get("kept") == b"42"


def test_without_persistence_a_killed_server_forgets() -> None:
    with testing.PrivateRedis(appendonly=False) as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", 42)
        server.kill()
        server.start()
        assert client.get("kept") is None


def test_a_restart_brings_it_back_at_the_same_address() -> None:
    with testing.PrivateRedis() as server, redis.Redis.from_url(server.url) as client:
        client.set("kept", 42)
        server.restart()
        assert client.get("kept") == b"42"


def test_it_takes_settings() -> None:
    with testing.PrivateRedis(maxmemory="5mb") as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(5 * 1024 * 1024)}


def test_no_process_and_no_file_is_left() -> None:
    with testing.PrivateRedis() as server:
        assert len(guard.processes_in(server.folder)) > 0
    assert guard.processes_in(server.folder) == set()
    assert not server.folder.exists()


def test_a_given_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESAPE_TEST_REDIS_URL", "redis://given/1")
    with testing.server() as server:
        assert server.url == "redis://given/1"
