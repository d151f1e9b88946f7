"""Storing, claiming and settling: what the scripts are given and what they answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from hesape.driver import already_queued, already_stored
from hesape.envelope import same_content
from hesape.records import Claim, Claimed, Key, NewRow, WorkerRow
from hesape_redis import records
from hesape_redis.link import Link
from hesape_redis.scripts import ALL


def store_rows(link: Link, rows: Sequence[NewRow]) -> None:
    """Store rows in order, all or nothing (I1, I2, B1): one round trip unless some are stored already."""
    left = _each_once(rows)
    while left:
        arguments: list[str | bytes] = []
        for index in left:
            arguments += records.new_job(rows[index])
        answer = link.run(ALL["push"], *arguments)
        if answer is None:
            return
        known, queued = answer
        same = set()
        for position, job in zip(known[::2], known[1::2], strict=True):
            row = rows[left[position]]
            if records.tenant_of(job) != row.tenant or not same_content(records.envelope_of(job), row.envelope):
                raise already_stored(rows, left[position])
            same.add(position)
        if queued >= 0:
            raise already_queued(rows, left[queued])
        left = [index for position, index in enumerate(left) if position not in same]


def _each_once(rows: Sequence[NewRow]) -> list[int]:
    """The positions of the rows whose id stands there for the first time."""
    first: dict[str, int] = {}
    for index, row in enumerate(rows):
        before = rows[first.setdefault(row.id, index)]
        if before is not row and (before.tenant != row.tenant or not same_content(before.envelope, row.envelope)):
            raise already_stored(rows, index)
    return list(first.values())


def reserve(link: Link, claim: Claim) -> Claimed:
    """Delete what is done, promote, claim: one step, one round trip (L6)."""
    queues = tuple(dict.fromkeys(claim.queues))
    answer = link.run(
        ALL["reserve"],
        claim.n,
        claim.lease_us,
        claim.token,
        claim.worker,
        int(claim.repeat),
        len(queues),
        *queues,
        *_flat(claim.done),
    )
    return records.claimed(answer, claim.done)


def delete(link: Link, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete current deliveries; the others (S3)."""
    return [keys[position] for position in link.run(ALL["delete"], int(repeat), *_flat(keys))]


def release(link: Link, key: Key, *, delay_us: int, spent: bool, error: str | None, exceptions: int) -> bool:
    """Put a current delivery back (S1)."""
    last = () if error is None else (error,)
    return bool(link.run(ALL["release"], key.id, key.token, delay_us, int(spent), exceptions, *last))


def fail(link: Link, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a current delivery (S1)."""
    last = () if error is None else (error,)
    return bool(link.run(ALL["fail"], key.id, key.token, exceptions, *last))


def extend(link: Link, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """Move deadlines forward, never back (L5)."""
    ends = link.run(ALL["extend"], lease_us, *_flat(keys))
    return [None if end is None else int(end) for end in ends]


def hand_back(link: Link, keys: Sequence[Key]) -> None:
    """Make ready again what never started (L8)."""
    link.run(ALL["hand_back"], *_flat(keys))


def beat(link: Link, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
    """Renew a worker and its leases that end soon; the paused queues (L9)."""
    return frozenset(queue.decode() for queue in link.run(ALL["beat"], worker, ttl_us, lease_us, *but))


def workers(link: Link) -> list[WorkerRow]:
    """The registered workers, by name."""
    rows = [
        WorkerRow(name.decode(), int(beat_us), held, int(since) if since else None)
        for name, beat_us, held, since in link.run(ALL["workers"])
    ]
    return sorted(rows)


def _flat(keys: Sequence[Key]) -> Iterable[str | bytes]:
    return chain.from_iterable(keys)
