"""For tests: a Redis server of one's own, and the harness for the conformance suite."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from urllib.parse import quote, unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hesape.config import ConnectionSettings
from hesape_conformance.harness import Harness, HarnessUnavailableError, NotOfferedError
from hesape_conformance.servers import PrivateServer, ServerError, find_program, given_or_private
from hesape_redis import keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from hesape_conformance.harness import RawRow
    from hesape_conformance.servers import Server

SERVER_VARIABLE = "HESAPE_TEST_REDIS_URL"


def server() -> AbstractContextManager[Server]:
    """The server that `HESAPE_TEST_REDIS_URL` names, or else a private one for as long as the block."""
    return given_or_private(SERVER_VARIABLE, PrivateRedis)


class PrivateRedis(PrivateServer):
    """A throw-away Redis with its append-only file on, or with no persistence at all.

    `options` are settings of the server, as in `PrivateRedis(appendonly=False, maxmemory="4mb")`.
    """

    label = "redis"
    users = ("redis",)

    def __init__(self, *, appendonly: bool = True, **options: str | int) -> None:
        super().__init__()
        self.options = {
            "bind": "127.0.0.1",
            "port": self.port,
            "dir": self.folder,
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            **{name.replace("_", "-"): value for name, value in options.items()},
        }

    @property
    def url(self) -> str:
        """The address of database 0, with the password if the server wants one."""
        password = self.options.get("requirepass")
        login = f":{quote(str(password), safe='')}@" if password else ""
        return f"redis://{login}127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        """The server in the foreground, without a configuration file."""
        settings = [word for name, value in self.options.items() for word in (f"--{name}", str(value))]
        return [find_program("redis-server"), *settings]

    def answers(self) -> bool:
        """Whether a ping comes back: not before the append-only file is loaded."""
        with (
            contextlib.suppress(redis.ConnectionError),
            redis.Redis.from_url(self.url, socket_timeout=2, retry=Retry(NoBackoff(), 0)) as client,
        ):
            return bool(client.ping())
        return False


_SECRET: Final = "s3cr3t/pass:word"  # noqa: S105 - it stands in the address, and must never be shown
_Place = tuple[Literal["ready", "scheduled", "reserved", "failed"], str, bytes]
"""Where a job is: its state, the key of its line, and its member there."""
_LINES: Final[Mapping[str, Literal["ready", "scheduled", "reserved"]]] = {
    "ready": "ready",
    "scheduled": "scheduled",
    "reserved": "reserved",
}


class RedisHarness(Harness):
    """The driver on a private server, or the one that `--url` or the environment names. A namespace is a prefix."""

    driver: ClassVar[str] = "redis"
    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the driver for every connection."""

    def __init__(self, url: str = "") -> None:
        """Start nothing yet."""
        super().__init__(url)
        self._stack = contextlib.ExitStack()
        self._server: Server | None = None
        self._version: tuple[str, str] = ("Redis", "")

    def start(self) -> None:
        """Find or start the server; one of our own syncs every write, or it couldn't promise to keep it."""
        private = partial(PrivateRedis, appendfsync="always", requirepass=_SECRET)
        try:
            if not self.url:
                self._server = self._stack.enter_context(given_or_private(SERVER_VARIABLE, private))
                self.url = self._server.url
                self.can_restart = self._server.can_restart
            with self.client() as client:
                found = client.info("server")
            valkey = found.get("valkey_version")
            self._version = ("Valkey", valkey) if valkey else ("Redis", found["redis_version"])
        except (ServerError, redis.RedisError) as error:
            message = f"no Redis answers: {error}"
            raise HarnessUnavailableError(message) from error

    def stop(self) -> None:
        """Stop a server of our own."""
        self._stack.close()

    def server(self) -> tuple[str, str]:
        """What was tested."""
        return self._version

    def settings(self, namespace: str, *, endpoint: tuple[str, int] | None = None) -> ConnectionSettings:
        """A connection whose keys begin with the namespace."""
        url = urlsplit(self.url)
        if endpoint is not None:
            login = url.netloc.rpartition("@")[0]
            url = url._replace(netloc=f"{login}{'@' if login else ''}{endpoint[0]}:{endpoint[1]}")
        options = {"prefix": f"{namespace}:", **self.options}
        return ConnectionSettings(name="main", driver=self.driver, url=url.geturl(), options=options)

    def secret(self) -> str | None:
        """The password in the address."""
        password = urlsplit(self.url).password
        return None if password is None else unquote(password)

    def endpoint(self) -> tuple[str, int] | None:
        """Where the server listens."""
        url = urlsplit(self.url)
        return url.hostname or "127.0.0.1", url.port or 6379

    def raw(self, namespace: str) -> RedisRaw:
        """The namespace's keys."""
        return RedisRaw(self, keys.base(f"{namespace}:"))

    def drop(self, namespace: str) -> None:
        """Remove its keys."""
        with self.client() as client:
            for key in client.scan_iter(match=keys.base(f"{namespace}:") + "*", count=1000):
                client.unlink(key)

    def restart(self) -> None:
        """Stop and start the private server, also a killed one."""
        self._private("restart").restart()

    def kill(self) -> None:
        """End the private server as a crash does."""
        self._private("kill").kill()

    def cut_sessions(self) -> None:
        """End every other session."""
        with self.client() as client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")

    @contextlib.contextmanager
    def full(self, namespace: str) -> Iterator[None]:
        """Give the server less memory than it uses, and let it drop nothing."""
        self._private("fill")
        with self.client() as client:
            client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            with self.client() as client:
                client.config_set("maxmemory", 0)

    def client(self) -> Any:
        """A client of the suite's own."""
        return redis.Redis.from_url(self.url, socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def _private(self, what: str) -> PrivateRedis:
        if not isinstance(self._server, PrivateRedis):
            message = f"can't {what} a server that isn't this harness's own"
            raise NotOfferedError(message)
        return self._server


class RedisRaw:
    """A namespace's keys, by commands of its own."""

    def __init__(self, harness: RedisHarness, base: str) -> None:
        """Connect for each call: the server may have been restarted between two."""
        self._harness = harness
        self._base = base

    def rows(self) -> list[RawRow]:
        """Every job."""
        with self._harness.client() as client:
            jobs = client.hgetall(f"{self._base}jobs")
            errors = client.hgetall(f"{self._base}errors")
            kept = client.hgetall(f"{self._base}state")
            lines = self._lines(client)
            return [
                self._row(job_id, job, errors.get(job_id), self._place(job_id, kept.get(job_id), lines))
                for job_id, job in jobs.items()
            ]

    def _row(self, job_id: bytes, job: bytes, error: bytes | None, place: _Place) -> RawRow:
        state, _, member = place
        counts = (member[75:].decode() or "0.0.0..").split(".")
        _, tenant, name, queue, envelope = job.split(b"\n", 4)
        return {
            "id": job_id.decode(),
            "envelope": envelope,
            "tenant": tenant.decode(),
            "name": name.decode(),
            "queue": queue.decode(),
            "state": state,
            "priority": int(member[:5]) - 32768,
            "attempts": int(counts[0]),
            "lapses": int(counts[1]),
            "exceptions": int(counts[2]),
            "last_error": None if error is None else error.decode(),
        }

    def _lines(self, client: Any) -> dict[bytes, _Place]:
        """Where every live job is, by its id."""
        return {
            member[39:75]: (state, key, member)
            for state in _LINES.values()
            for key in client.scan_iter(match=f"{self._base}{state}:*", count=1000)
            for member in client.zrange(key, 0, -1)
        }

    @staticmethod
    def _place(job_id: bytes, kept: bytes | None, lines: Mapping[bytes, _Place]) -> _Place:
        """Where a job is."""
        if kept and kept.startswith(b"f"):
            return "failed", "", kept[53 : kept.index(b"\n", 128)]
        assert job_id in lines, f"job {job_id.decode()} stands in no line"
        return lines[job_id]

    def overwrite(self, job_id: str, field: str, value: object) -> None:
        """Set one field of a job."""
        with self._harness.client() as client:
            known = job_id.encode()
            job = client.hget(f"{self._base}jobs", known)
            assert job is not None, f"no job {job_id}"
            if field == "attempts":
                self._overwrite_attempts(client, known, str(value).encode())
                return
            parts = job.split(b"\n", 4)
            new = value if isinstance(value, bytes) else str(value).encode()
            parts[("pushed", "tenant", "name", "queue", "envelope").index(field)] = new
            client.hset(f"{self._base}jobs", known, b"\n".join(parts))

    def _overwrite_attempts(self, client: Any, job_id: bytes, attempts: bytes) -> None:
        _, key, member = self._place(job_id, client.hget(f"{self._base}state", job_id), self._lines(client))
        counts = (member[75:] or b"0.0.0..").split(b".")
        new = member[:75] + b".".join([attempts, *counts[1:]])
        if key:
            score = client.zscore(key, member)
            client.zrem(key, member)
            client.zadd(key, {new: score})
        state = client.hget(f"{self._base}state", job_id)
        if state and member in state:
            client.hset(f"{self._base}state", job_id, state.replace(member, new))

    def entries(self) -> int:
        """Locks, counters, flags, unique keys, workers and paused queues."""
        with self._harness.client() as client:
            expiring = sum(1 for _ in client.scan_iter(match=f"{self._base}entry:*", count=1000))
            return expiring + int(client.hlen(f"{self._base}workers")) + int(client.scard(f"{self._base}paused"))


harness = RedisHarness
