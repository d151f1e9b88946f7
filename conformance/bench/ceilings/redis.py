"""The plain script on Redis: one server-side script a push, one that acknowledges 50 and takes the next 50."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from os import urandom
from typing import Any

import redis

from hesape.config import ConnectionSettings
from hesape_conformance.bench.ceiling import decode, encode

READY, RESERVED, JOBS, SEQUENCE = "{ceiling}:ready", "{ceiling}:reserved", "{ceiling}:jobs", "{ceiling}:seq"
KEYS = [READY, RESERVED, JOBS, SEQUENCE]
PUSH = """
local now = redis.call('TIME')
for at = 1, #ARGV, 2 do
  local place = string.format('%05d%010d%06d%016d', 100 + 32768, now[1], now[2], redis.call('INCR', KEYS[4]))
  redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1])
  redis.call('ZADD', KEYS[1], 0, place .. ARGV[at])
end
"""
CLAIM = """
for at = 2, #ARGV do
  redis.call('ZREM', KEYS[2], ARGV[at])
  redis.call('HDEL', KEYS[3], ARGV[at])
end
local members = redis.call('ZRANGE', KEYS[1], 0, 49)
if #members == 0 then return {} end
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #members - 1)
local time = redis.call('TIME')
local until_us = time[1] * 1000000 + time[2] + 60000000
local ids, reserved = {}, {}
for at, member in ipairs(members) do
  ids[at] = string.sub(member, -36)
  reserved[2 * at - 1], reserved[2 * at] = until_us, ids[at]
end
redis.call('ZADD', KEYS[2], unpack(reserved))
redis.call('HSET', KEYS[3], 'token', ARGV[1])
return {ids, redis.call('HMGET', KEYS[3], unpack(ids))}
"""


class Ceiling:
    """One connection; the server's own persistence settings."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Connect to the driver's server."""
        self._client = redis.Redis.from_url(settings.url)
        self._push = self._client.register_script(PUSH)
        self._claim = self._client.register_script(CLAIM)

    def prepare(self) -> None:
        """No keys; a long sentinel keeps the reserved set out of its compact, slower form."""
        self._client.delete(*KEYS)
        self._client.zadd(RESERVED, {"~" * 65: float("inf")})

    def push(self, payloads: Sequence[object]) -> None:
        """One script call each."""
        for payload in payloads:
            self._push(keys=KEYS, args=encode(payload))

    def bulk(self, payloads: Sequence[object]) -> None:
        """A thousand a call."""
        for at in range(0, len(payloads), 1000):
            arguments = [part for payload in payloads[at : at + 1000] for part in encode(payload)]
            self._push(keys=KEYS, args=arguments)

    def drain(self) -> int:
        """Acknowledge the last batch and take the next in one call."""
        done: list[bytes] = []
        drained = 0
        while True:
            found = self._claim(keys=KEYS, args=[urandom(16), *done])
            drained += len(done)
            if not found:
                return drained
            done, envelopes = found
            for envelope in envelopes:
                decode(envelope)

    def close(self) -> None:
        """Remove the keys."""
        self._client.delete(*KEYS)
        self._client.close()


COPY = """
local model = ARGV[1]
local function renamed(text, id)
  local from, to = string.find(text, model, 1, true)
  return from and string.sub(text, 1, from - 1) .. id .. string.sub(text, to + 1) or text
end
for at = 4, #ARGV, 4 do
  local key, kind, member, value = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local pairs = {}
  for n = ARGV[2], ARGV[3] do
    local id = string.format('%08x-0000-7000-8000-000000000000', n)
    local last = #pairs
    if kind == 'hash' then
      pairs[last + 1], pairs[last + 2] = renamed(member, id), renamed(value, id)
    else
      pairs[last + 1], pairs[last + 2] = value, renamed(member, id)
    end
  end
  redis.call(kind == 'hash' and 'HSET' or 'ZADD', key, unpack(pairs))
end
"""
STEP = 1_000
"""Jobs a call: as much as `unpack` takes."""


def durability(settings: ConnectionSettings) -> str:
    """What a write waits for, on the server that both use."""
    with closing(redis.Redis.from_url(settings.url, decode_responses=True)) as client:
        found = client.config_get("append*")
    return f"appendonly {found['appendonly']}, appendfsync {found['appendfsync']}"


def copies(settings: ConnectionSettings, n: int) -> None:
    """Copy what the one job has in each hash and sorted set."""
    client: Any
    with closing(redis.Redis.from_url(settings.url, socket_timeout=60)) as client:
        items: list[tuple[Any, ...]] = []
        for key in client.scan_iter(match=f"{settings.options['prefix']}*", count=1000):
            if (kind := client.type(key)) == b"hash":
                items += [(key, kind, *item) for item in client.hgetall(key).items()]
            elif kind == b"zset":
                found = client.zrange(key, 0, -1, withscores=True)
                items += [(key, kind, member, repr(score).encode()) for member, score in found]
        job = next(member for key, _, member, _ in items if key.endswith(b":jobs"))
        parts = [part for item in items if job in item[2] for part in item]
        copy = client.register_script(COPY)
        for at in range(1, n + 1, STEP):
            copy(args=[job, at, min(at + STEP - 1, n), *parts])
