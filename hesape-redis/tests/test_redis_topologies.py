"""TLS, Unix sockets, sentinels and clusters, each with real servers."""

from __future__ import annotations

import contextlib
import pwd
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from hesape.errors import HesapeError, StoreBusyError, StoreRefusedError, StoreUnavailableError
from hesape_conformance.servers import find_program, free_port
from hesape_redis.driver import RedisDriver
from hesape_redis.testing import PrivateRedis

PASSWORD = "s3cr3t"


def a_whole_life(desk: Any) -> None:
    """Push, wait, pop, release, fail, retry, delete."""
    desk.push({"n": 1})
    assert desk.driver.wait(["default"], 5) is True
    desk.take().release()
    desk.take().fail("Boom")
    [failed] = desk.queue.operator().failed()
    desk.queue.operator().retry(failed.id)
    desk.take().delete()
    assert desk.driver.wait(["default"], 0.01) is False
    desk.bulk(100)
    assert desk.numbers() == list(range(100))
    assert "Redis" in desk.driver.ping()


# TLS.


class TlsRedis(PrivateRedis):
    """A server that speaks TLS alone, with a certificate of its own making for 127.0.0.1."""

    def __init__(self) -> None:
        super().__init__(port=0)
        self.certificate, key = self.folder / "server.crt", self.folder / "server.key"
        words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)]
        subprocess.run([find_program("openssl"), *words, *files], check=True, capture_output=True)
        if self.user is not None:
            shutil.chown(key, self.user)
        self.options |= {
            "tls-port": self.port,
            "tls-cert-file": self.certificate,
            "tls-key-file": key,
            "tls-auth-clients": "no",
        }

    @property
    def url(self) -> str:
        return f"rediss://127.0.0.1:{self.port}/0?tls_ca={self.certificate}"

    def answers(self) -> bool:
        with (
            contextlib.suppress(redis.ConnectionError),
            redis.Redis(port=self.port, ssl=True, ssl_ca_certs=str(self.certificate), ssl_cert_reqs="none") as client,
        ):
            return bool(client.ping())
        return False


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsRedis]:
    with TlsRedis() as server:
        yield server


def test_over_tls(tls: TlsRedis, opened: Callable[..., RedisDriver], at: Any) -> None:
    a_whole_life(at(opened(tls.url)))


def test_over_tls_ended_sessions_are_replaced(tls: TlsRedis, opened: Callable[..., RedisDriver]) -> None:
    driver = opened(tls.url)
    driver.pause("default")
    with redis.Redis(port=tls.port, ssl=True, ssl_ca_certs=str(tls.certificate), ssl_cert_reqs="none") as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert driver.queues() == ["default"]


def test_a_certificate_that_nobody_vouches_for_is_refused(tls: TlsRedis, opened: Callable[..., RedisDriver]) -> None:
    with pytest.raises(StoreUnavailableError, match=r"(?i)certificate"):
        opened(tls.url.partition("?")[0]).ping()
    assert "Redis" in opened(tls.url.partition("?")[0], tls_verify=False).ping()


def test_a_plain_client_at_a_tls_port_is_told_that_the_store_is_unavailable(
    tls: TlsRedis, opened: Callable[..., RedisDriver]
) -> None:
    with pytest.raises(HesapeError):
        opened(f"redis://127.0.0.1:{tls.port}").ping()


# A Unix socket.


def test_over_a_unix_socket(opened: Callable[..., RedisDriver], at: Any) -> None:
    server = PrivateRedis()
    server.options |= {"unixsocket": server.folder / "redis.sock", "unixsocketperm": 777}
    with server:
        a_whole_life(at(opened(f"redis+unix://{server.folder}/redis.sock?database=3")))


# Sentinels.


class PrivateSentinel(PrivateRedis):
    """A sentinel that watches one master and needs nobody's agreement."""

    def __init__(self, master: PrivateRedis) -> None:
        super().__init__()
        self.file = self.folder / "sentinel.conf"
        lines = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"sentinel monitor main 127.0.0.1 {master.port} 1",
            "sentinel down-after-milliseconds main 500",
            "sentinel failover-timeout main 5000",
        ]
        self.file.write_text("\n".join(lines) + "\n", encoding="ascii")
        if self.user is not None:
            shutil.chown(self.file, self.user, pwd.getpwnam(self.user).pw_gid)

    def command(self) -> list[str]:
        return [find_program("redis-server"), str(self.file), "--sentinel"]


def test_a_sentinel_names_the_master_also_after_a_failover(
    opened: Callable[..., RedisDriver], at: Any, poll: Any
) -> None:
    with PrivateRedis() as first, PrivateRedis(replicaof=f"127.0.0.1 {first.port}") as second:
        with redis.Redis.from_url(first.url) as client:
            poll(lambda: client.info("replication")["connected_slaves"] == 1, "the replica follows")
            poll(lambda: client.info("replication").get("slave0", {}).get("state") == "online", "it is online")
        with PrivateSentinel(first) as sentinel:
            url = f"redis+sentinel://127.0.0.1:9,127.0.0.1:{sentinel.port}/main/0"
            desk = at(opened(url, connect_timeout=2))
            a_whole_life(desk)
            desk.push({"n": 1})
            with redis.Redis(port=sentinel.port) as client:
                poll(lambda: client.sentinel_slaves("main"), "the sentinel knows the replica", 20)
                with redis.Redis.from_url(first.url) as master:
                    master.wait(1, 5_000)
                poll(lambda: _fails_over(client), "the sentinel finds the replica good enough", 20)
                poll(lambda: client.sentinel_get_master_addr_by_name("main")[1] == second.port, "it fails over", 30)
            poll(lambda: _works(desk), "the driver follows", 20)
            with redis.Redis.from_url(second.url) as client:
                poll(lambda: client.info("replication")["role"] == "master", "the replica is the master")
                assert client.hlen(f"{desk.driver.base}jobs") == 1
            assert desk.numbers() == [1]


def _fails_over(sentinel: Any) -> bool:
    with contextlib.suppress(redis.ResponseError):
        return bool(sentinel.execute_command("SENTINEL", "FAILOVER", "main"))
    return False


def _works(desk: Any) -> bool:
    try:
        desk.driver.pause("other")
    except (StoreUnavailableError, StoreRefusedError):
        return False
    return True


def test_a_demoted_master_is_unavailable_not_of_unknown_outcome(
    opened: Callable[..., RedisDriver], own_server: PrivateRedis
) -> None:
    with PrivateSentinel(own_server) as sentinel:
        driver = opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
        driver.pause("default")
        with redis.Redis.from_url(own_server.url) as client:
            client.replicaof("127.0.0.1", 9)
            with pytest.raises(StoreUnavailableError, match="slave"):
                driver.resume("default")
            client.replicaof("NO", "ONE")
        assert driver.queues() == ["default"]


def test_a_service_that_no_sentinel_knows_is_unavailable(
    opened: Callable[..., RedisDriver], own_server: PrivateRedis
) -> None:
    with PrivateSentinel(own_server) as sentinel, pytest.raises(StoreUnavailableError, match="other"):
        opened(f"redis+sentinel://127.0.0.1:{sentinel.port}/other").ping()


# Clusters.


class ClusterNode(PrivateRedis):
    """A node of a cluster."""

    def __init__(self) -> None:
        super().__init__(cluster_enabled="yes", cluster_port=free_port(), requirepass=PASSWORD)

    def admin(self, *words: object) -> Any:
        with redis.Redis.from_url(self.url) as client:
            return client.execute_command(*words)

    @property
    def id(self) -> str:
        return str(self.admin("CLUSTER", "MYID").decode())


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[ClusterNode, ClusterNode]]:
    """Two nodes, of which the first serves every slot."""
    with ClusterNode() as one, ClusterNode() as two:
        one.admin("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        two.admin("CLUSTER", "MEET", "127.0.0.1", one.port, one.options["cluster-port"])
        yield one, two


@pytest.fixture
def in_cluster(cluster: tuple[ClusterNode, ClusterNode], opened: Callable[..., RedisDriver], at: Any, poll: Any) -> Any:
    one, two = cluster
    for node in cluster:
        poll(lambda node=node: b"cluster_state:ok" in _cluster_info(node), "the cluster is well", 30)
        poll(lambda node=node: b"cluster_known_nodes:2" in _cluster_info(node), "the nodes know each other", 30)
    return at(opened(f"redis+cluster://:{PASSWORD}@127.0.0.1:9,127.0.0.1:{one.port},127.0.0.1:{two.port}"))


def _cluster_info(node: ClusterNode) -> bytes:
    with redis.Redis.from_url(node.url) as client:
        connection = client.connection_pool.get_connection()
        connection.send_command("CLUSTER", "INFO")
        found: bytes = connection.read_response()
        client.connection_pool.release(connection)
    return found


def test_on_a_cluster(in_cluster: Any) -> None:
    a_whole_life(in_cluster)


def test_through_a_ready_made_client_of_a_cluster(
    cluster: tuple[ClusterNode, ClusterNode], in_cluster: Any, prefix: str, at: Any
) -> None:
    with redis.RedisCluster(port=cluster[0].port, host="127.0.0.1", password=PASSWORD, decode_responses=True) as client:
        driver = RedisDriver.of_client(client, prefix=prefix)
        a_whole_life(at(driver))
        driver.close()
        assert client.ping()


def test_a_slot_that_moved_is_found_again(cluster: tuple[ClusterNode, ClusterNode], in_cluster: Any) -> None:
    """While it moves every call is refused before it begins, because nothing is where scripts say they work."""
    one, two = cluster
    slot = one.admin("CLUSTER", "KEYSLOT", in_cluster.driver.base)
    in_cluster.push({"n": 1})
    in_cluster.driver.pause("other")
    moving = one.admin("CLUSTER", "GETKEYSINSLOT", slot, 1000)
    two.admin("CLUSTER", "SETSLOT", slot, "IMPORTING", one.id)
    one.admin("CLUSTER", "SETSLOT", slot, "MIGRATING", two.id)
    one.admin("MIGRATE", "127.0.0.1", two.port, "", 0, 5000, "AUTH", PASSWORD, "KEYS", *moving[:2])
    for _ in range(3):
        with pytest.raises(StoreBusyError):
            in_cluster.driver.pause("third")
    one.admin("MIGRATE", "127.0.0.1", two.port, "", 0, 5000, "AUTH", PASSWORD, "KEYS", *moving[2:])
    for node in (two, one):
        node.admin("CLUSTER", "SETSLOT", slot, "NODE", two.id)
    assert in_cluster.numbers() == [1]
    assert in_cluster.driver.queues() == ["other"]
    assert in_cluster.driver.wait(["default"], 0.01) is False
    moving = two.admin("CLUSTER", "GETKEYSINSLOT", slot, 1000)
    assert all(key.startswith(in_cluster.driver.base.encode()) for key in moving)


def test_a_plain_address_of_a_cluster_is_told_how_to_name_it(
    cluster: tuple[ClusterNode, ClusterNode], in_cluster: Any, opened: Callable[..., RedisDriver]
) -> None:
    """The second node serves no slot but the one that moved to it."""
    driver = opened(cluster[1].url, prefix="elsewhere:")
    assert key_slot(driver.base.encode()) != key_slot(in_cluster.driver.base.encode())
    with pytest.raises(StoreRefusedError, match=r"redis\+cluster://"):
        driver.pause("default")
