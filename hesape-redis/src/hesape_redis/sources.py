"""Where connections come from: one server, the master that sentinels name, the node of a cluster, or a lent client."""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import Connection, ConnectionPool, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from hesape.errors import ConfigError
from hesape_redis.settings import Settings


class Source(Protocol):
    """Makes connections to the server that holds the keys. Threads may share it."""

    def connect(self) -> Any:
        """A connection, connected."""

    def owns(self, connection: Any) -> bool:
        """Whether a connection leads where `connect` would."""

    def give_back(self, connection: Any) -> None:
        """Take back one that isn't needed any more."""

    def refresh(self) -> bool:
        """Learn anew where the keys are; False when it can't follow them."""

    def close(self) -> None:
        """Close what nobody uses."""


class PoolSource:
    """The connections of a pool of the client library's, which notices a fork by itself."""

    def __init__(self, pool: Any, *, lent: bool = False) -> None:
        """Take from `pool`; one that is `lent` is never closed here."""
        self._pool = pool
        self._lent = lent

    def connect(self) -> Any:
        """A connection, connected."""
        return self._pool.get_connection()

    def owns(self, connection: Any) -> bool:
        """Every connection of this process."""
        return bool(connection.pid == os.getpid())

    def give_back(self, connection: Any) -> None:
        """Return it to the pool."""
        self._pool.release(connection)

    def refresh(self) -> bool:
        """No: it is always the same server."""
        return False

    def close(self) -> None:
        """Close the idle connections of our own pool."""
        if not self._lent:
            self._pool.disconnect(inuse_connections=False)


class ClusterSource:
    """Connections to the node that serves the slot of `key`."""

    def __init__(self, key: str, open_client: Any, *, lent: bool = False) -> None:
        """Find the node by a client that `open_client` makes at first use."""
        self._key = key
        self._open_client = open_client
        self._lent = lent
        self._client: Any = None
        self._pid = os.getpid()
        self._opening = threading.Lock()

    def _pool(self) -> Any:
        if self._pid != os.getpid():
            self._client, self._pid, self._opening = None, os.getpid(), threading.Lock()
        with self._opening:
            if self._client is None:
                self._client = self._open_client()
            client = self._client
        node = client.get_node_from_key(self._key)
        return client.get_redis_connection(node).connection_pool

    def connect(self) -> Any:
        """A connection to that node, connected."""
        return self._pool().get_connection()

    def owns(self, connection: Any) -> bool:
        """Whether it is this process's and leads to the node that serves the slot now."""
        if connection.pid != os.getpid() or self._client is None:
            return False
        node = self._client.get_node_from_key(self._key)
        return (node.host, node.port) == (connection.host, connection.port)

    def give_back(self, connection: Any) -> None:
        """Return it to its node's pool, if that is still there."""
        if self._client is None:
            return
        for node in self._client.get_nodes():
            if node.redis_connection is not None and (node.host, node.port) == (connection.host, connection.port):
                node.redis_connection.connection_pool.release(connection)

    def refresh(self) -> bool:
        """Ask the cluster which node serves which slot."""
        if self._client is not None:
            self._client.nodes_manager.initialize()
        return True

    def close(self) -> None:
        """Close our own client."""
        with self._opening:
            if self._client is not None and not self._lent:
                self._client.close()
                self._client = None


def source(settings: Settings, key: str) -> Source:
    """The source that settings name, for the keys beside `key`. Connects lazily."""
    if settings.client is not None:
        return _lent(settings.client, key)
    if settings.kind == "cluster":
        return ClusterSource(key, partial(_cluster, settings))
    if settings.kind == "sentinel":
        return PoolSource(_sentinel_pool(settings))
    return PoolSource(ConnectionPool(**_target(settings), **_options(settings), max_connections=settings.pool_size))


def _lent(client: Any, key: str) -> Source:
    if isinstance(client, redis.RedisCluster):
        return ClusterSource(key, lambda: client, lent=True)
    if isinstance(client, redis.Redis):
        return PoolSource(client.connection_pool, lent=True)
    found = f"{type(client).__module__}.{type(client).__qualname__}"
    raise ConfigError(f"option 'client': expected a redis.Redis or redis.RedisCluster, found {found}")


def _options(settings: Settings) -> dict[str, Any]:
    """What every connection is made with: no repetition of the client library's own (I2)."""
    return {
        "db": settings.database,
        "username": settings.username,
        "password": settings.password,
        "socket_timeout": settings.timeout,
        "socket_connect_timeout": settings.connect_timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
    }


def _over_tcp(settings: Settings) -> dict[str, Any]:
    if not settings.tls:
        return {"socket_keepalive": True}
    return {
        "socket_keepalive": True,
        "ssl_ca_certs": settings.tls_ca,
        "ssl_certfile": settings.tls_cert,
        "ssl_keyfile": settings.tls_key,
        "ssl_cert_reqs": "required" if settings.tls_verify else "none",
        "ssl_check_hostname": settings.tls_verify,
    }


def _target(settings: Settings) -> dict[str, Any]:
    if settings.kind == "unix":
        return {"connection_class": UnixDomainSocketConnection, "path": settings.service}
    host, port = settings.hosts[0]
    kind = SSLConnection if settings.tls else Connection
    return {"connection_class": kind, "host": host, "port": port, **_over_tcp(settings)}


def _sentinel_pool(settings: Settings) -> SentinelConnectionPool:
    over_tcp = {**_over_tcp(settings), "ssl": settings.tls}
    to_sentinels = {
        **_options(settings),
        **over_tcp,
        "db": 0,
        "username": settings.sentinel_username,
        "password": settings.sentinel_password,
    }
    sentinels = Sentinel(list(settings.hosts), sentinel_kwargs=to_sentinels)  # type: ignore[no-untyped-call]
    return SentinelConnectionPool(  # type: ignore[no-untyped-call]
        settings.service, sentinels, max_connections=settings.pool_size, **_options(settings), **over_tcp
    )


def _cluster(settings: Settings) -> Any:
    nodes = [ClusterNode(host, port) for host, port in settings.hosts]  # type: ignore[no-untyped-call]
    options = {**_options(settings), **_over_tcp(settings), "ssl": settings.tls}
    del options["db"]
    return redis.RedisCluster(startup_nodes=nodes, max_connections=settings.pool_size, **options)
