"""Settling deliveries, and the workers that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hesape.records import Key, WorkerRow
from hesape_postgres import liveness, records, statements
from hesape_postgres.lent import Lent
from hesape_postgres.link import Link
from hesape_postgres.liveness import Liveness
from hesape_postgres.notify import Announcer, Woken
from hesape_postgres.storing import Runs, wake_lent


def delete(link: Link, runs: Runs, keys: Sequence[Key], *, repeat: bool) -> list[Key]:
    """Delete the current deliveries; the others, of which with `repeat` absent rows are no part (S3, S5)."""
    ordered = sorted(set(keys))
    wanted = records.keys(ordered)
    gone = {ordered[place - 1] for (place,) in runs.rows(link.sql[statements.DELETE], wanted)}
    lost = [key for key in keys if key not in gone]
    if repeat and lost:
        left = {job_id for (job_id,) in runs.rows(link.sql[statements.PRESENT], {"ids": wanted["ids"]})}
        lost = [key for key in lost if key.id in left]
    return lost


def release(
    link: Link,
    announcer: Announcer,
    lent: Lent | None,
    key: Key,
    *,
    delay_us: int,
    spent: bool,
    error: str | None,
    exceptions: int,
) -> bool:
    """Put a current delivery back; true for a repeat too (S1, L4)."""
    params = {**_settled(link, key, error, exceptions), "delay": delay_us, "unspent": 0 if spent else 1}
    statement = link.sql[statements.RELEASE]
    if lent is not None:
        found = lent.rows(statement, params)
        if woken := _released(found, later=delay_us > 0):
            wake_lent(link, lent, woken)
        return bool(found)
    with link.own() as own:
        found = own.rows(statement, params)
        announcer.after(own, _released(found, later=delay_us > 0))
    return bool(found)


def _released(found: Sequence[tuple[Any, ...]], *, later: bool) -> list[Woken]:
    return [Woken(records.as_text(queue), later) for (queue,) in found if queue is not None]


def fail(link: Link, runs: Runs, key: Key, *, error: str | None, exceptions: int) -> bool:
    """Park a current delivery; true for a repeat too (S1, L4)."""
    return bool(runs.rows(link.sql[statements.FAIL], _settled(link, key, error, exceptions)))


def _settled(link: Link, key: Key, error: str | None, exceptions: int) -> dict[str, Any]:
    return {
        "id": key.id,
        "token": records.token(key),
        "error": None if error is None else link.text.put(error).encode(),
        "exceptions": exceptions,
    }


def extend(link: Link, keys: Sequence[Key], lease_us: int) -> list[int | None]:
    """The deadlines of the current deliveries, moved forward if `lease_us` says so (L5)."""
    params = records.keys(keys)
    if lease_us > 0:
        found = dict(link.rows(statements.EXTEND, {**params, "lease": lease_us}))
    else:
        found = dict(link.look(statements.LOOK_LEASES, params))
    return [found.get(place) for place in range(1, len(keys) + 1)]


def hand_back(link: Link, announcer: Announcer, keys: Sequence[Key]) -> None:
    """Make what never started ready again, in its old place (L8)."""
    with link.own() as own:
        found = own.rows(link.sql[statements.HAND_BACK], records.keys(sorted(set(keys))))
        announcer.after(own, _anywhere(found))


def beat(link: Link, alive: Liveness, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
    """Register or renew a worker, and its leases that end soon; the paused queues."""
    link.find()
    params = {
        **alive.registration(worker),
        "worker": link.text.put(worker),
        "ttl": ttl_us,
        "lease": lease_us,
        "but": records.array(but),
    }
    return frozenset(link.rows(statements.BEAT, params)[0][0])


def retire(link: Link, announcer: Announcer, alive: Liveness, worker: str) -> int:
    """Forget a worker and free what it holds; how many. What somebody has locked is left to the next rescue."""
    if not worker:
        return 0  # deliveries without a worker are ended by their lease alone (L4)
    with link.transaction() as own:
        named = {"worker": link.text.put(worker)}
        own.count(link.sql[statements.RETIRE], named)
        freed = own.rows(link.sql[statements.FREE_RETIRED], named)
    alive.drop(worker)
    return _announce(announcer, freed)


def rescue(link: Link, announcer: Announcer) -> int:
    """Free what dead workers hold, and sweep what expired; how many jobs came back."""
    if not link.options.pooler:
        liveness.sight(link)
    freed = link.rows(statements.FREE_DEAD)
    link.count(statements.SWEEP)
    return _announce(announcer, freed)


def workers(link: Link) -> list[WorkerRow]:
    """The registered workers, by name."""
    return [WorkerRow(link.text.get(worker), *rest) for worker, *rest in link.look(statements.WORKERS)]


def _announce(announcer: Announcer, freed: Sequence[tuple[Any, ...]]) -> int:
    if freed:
        announcer.committed(_anywhere(freed))
    return sum(count for _, count in freed)


def _anywhere(found: Sequence[tuple[Any, ...]]) -> list[Woken]:
    return [Woken(queue) for queue, *_ in found]
