"""Workers: their beats, their deaths, and what they held."""

from __future__ import annotations

from collections.abc import Sequence

from hesape.drivers.sqlite import statements as sql
from hesape.drivers.sqlite.liveness import Liveness
from hesape.drivers.sqlite.records import to_blob
from hesape.drivers.sqlite.session import Session
from hesape.records import WorkerRow


def beat(session: Session, worker: str, ttl_us: int, lease_us: int, but: Sequence[str]) -> frozenset[str]:
    """Renew a worker and the leases it holds that end soon; the paused queues (L9)."""
    session.begin()
    now_us = session.now()
    session.run(sql.BEAT, (worker, now_us, now_us + ttl_us))
    spared = f" AND id NOT IN ({', '.join('?' * len(but))})" if but else ""
    soon = (now_us + lease_us, worker, now_us, now_us + lease_us // 2)
    session.run(sql.RENEW + spared, (*soon, *map(to_blob, but)))
    return frozenset(queue for (queue,) in session.rows(sql.PAUSED))


def retire(session: Session, worker: str) -> int:
    """Forget a worker and free what it holds; how many jobs."""
    session.begin()
    return _retire(session, worker)


def _retire(session: Session, worker: str) -> int:
    session.run(sql.FORGET_WORKER, (worker,))
    return session.run(sql.FREE_HELD, (worker,)) if worker else 0


def absent(session: Session, liveness: Liveness) -> frozenset[str]:
    """The registered workers whose lock nobody holds. They lock before they register."""
    return frozenset(worker for worker, _ in session.rows(sql.BEATS) if not liveness.is_alive(worker))


def rescue(session: Session, liveness: Liveness, seen: frozenset[str]) -> tuple[int, list[str]]:
    """Retire the dead and forget what expired, writing only when there is any: how many jobs came back, and whose.

    Dead is whose beats ran out, or whose lock nobody holds though that was `seen` a while ago.
    """
    if not _dead(session, liveness, seen) and not session.rows(sql.ENDED, (session.now(),))[0][0]:
        return 0, []
    session.begin()
    session.run(sql.FORGET_ENDED, (session.now(),))
    gone = _dead(session, liveness, seen)
    return sum(_retire(session, worker) for worker in gone), gone


def _dead(session: Session, liveness: Liveness, seen: frozenset[str]) -> list[str]:
    now_us = session.now()
    return [
        worker
        for worker, end_us in session.rows(sql.BEATS)
        if end_us <= now_us or (worker in seen and not liveness.is_alive(worker))
    ]


def workers(session: Session) -> list[WorkerRow]:
    """The registered workers by name, with how much they hold and since when."""
    return [WorkerRow(*values) for values in session.rows(sql.WORKERS)]
