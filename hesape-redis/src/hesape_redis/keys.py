r"""Where a connection's keys lie: under one prefix, and on a cluster in one slot.

A job's id is unique over all queues, a claim takes several queues, and lists run over all of them: so all keys of a
connection share one hash tag. A cluster therefore spreads connections, not the queues of one.

    jobs                id -> pushed \n tenant \n name \n queue \n envelope     a hash; written once
    state               id -> see scripts/parts/state.lua                      a hash; reserved, released, failed jobs
    errors              id -> the last error                                   a hash
    ready:QUEUE         members in the order of claims, score 0                sorted sets; scripts/parts/member.lua
    scheduled:QUEUE     members by due time
    reserved:QUEUE      members by the end of their lease
    claims, open        token -> worker and ids; token -> how many aren't settled   hashes; scripts/parts/claim.lua
    held:WORKER         the tokens of the claims that a worker holds           a set
    failed, failed:queue:QUEUE, failed:tenant:TENANT, failed:both:TENANT:QUEUE   failed(18) id, score 0
    workers             worker -> last beat, its end                           a hash
    queues, paused      sets of names
    sequence            the last place in line that was given
    entry:KEY           locks, counters, flags, unique keys; they expire
"""

from __future__ import annotations

from typing import Final

DEFAULT_PREFIX: Final = "hesape:"


def base(prefix: str) -> str:
    """What every key and channel begins with: the prefix, and once more as the hash tag.

    It is also the one key that scripts declare, and there never is a key of that name: while its slot moves to another
    node of a cluster, the old one therefore refuses each call before it begins, instead of working on half of the keys.
    """
    return f"{prefix}{{{prefix.rstrip(':')}}}:"


def channel(base_key: str, queue: str) -> str:
    """Where a queue's waiters are told that something may be due."""
    return f"{base_key}wake:{queue}"


def failed_list(tenant: str | None, queue: str | None) -> str:
    """Which failed list shows a tenant's and a queue's jobs, `None`: all."""
    if tenant is None:
        return "failed" if queue is None else f"failed:queue:{queue}"
    return f"failed:tenant:{tenant}" if queue is None else f"failed:both:{tenant}:{queue}"
