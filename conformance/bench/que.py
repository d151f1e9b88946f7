"""Drain 20,000 no-op Que jobs, in turns by `QueWorker` and by a client of four round trips a job, and print both rates.

    python conformance/bench/que.py [postgresql://...] [--jobs 20000] [--json] [--out FILE]

Without an address a private server is started. Both work the same table in the same run, a slice each in turn, through
the same client library with prepared statements, and both hold a job's lock until its deletion is committed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool

from hesape_postgres import testing
from hesape_postgres.que import QueClient, QueJob, QueWorker, migrate

SLICE = 1000

LOCK = """
with recursive tried as (
  (select row.*, pg_try_advisory_lock((row.j).job_id) as won
     from (select j from que_jobs j where queue = %(queue)s and run_at <= now()
            order by priority, run_at, job_id limit 1) as row)
  union all
  (select row.*, pg_try_advisory_lock((row.j).job_id)
     from tried,
          lateral (select j from que_jobs j
                    where queue = %(queue)s and run_at <= now()
                      and (priority, run_at, job_id)
                        > ((tried.j).priority, (tried.j).run_at, (tried.j).job_id)
                    order by priority, run_at, job_id limit 1) as row
    where not tried.won)
)
select (j).queue, (j).priority, (j).run_at, (j).job_id, (j).job_class, (j).args, (j).error_count from tried where won
"""
KEY = "queue = %s and priority = %s and run_at = %s and job_id = %s"
CHECK = f"select true from que_jobs where {KEY}"
DESTROY = f"delete from que_jobs where {KEY}"
UNLOCK = "select pg_advisory_unlock(%s)"


def drain_plainly(url: str, queue: str, count: int) -> float:
    """Work `count` jobs with four round trips each; seconds."""
    with psycopg.connect(url, autocommit=True) as conn:
        began = time.perf_counter()
        for _ in range(count):
            row = conn.execute(LOCK, {"queue": queue}, prepare=True).fetchone()
            if row is None or conn.execute(CHECK, row[:4], prepare=True).fetchone() is None:
                raise RuntimeError("the plain client is alone on this table")
            conn.execute(DESTROY, row[:4], prepare=True)
            conn.execute(UNLOCK, row[3:4], prepare=True)
        return time.perf_counter() - began


def drain_with_worker(url: str, queue: str, count: int) -> float:
    """Work `count` jobs with one `QueWorker`; seconds."""
    seen = 0

    def handle(_job: QueJob) -> None:
        nonlocal seen
        seen += 1
        if seen == count:
            worker.ask_to_stop()

    with psycopg_pool.ConnectionPool(url, min_size=1, max_size=1) as pool:
        pool.wait()
        worker = QueWorker(QueClient(pool), {"bench": handle}, queue=queue)
        began = time.perf_counter()
        worker.work()
        spent = time.perf_counter() - began
    if seen != count:
        raise RuntimeError(f"the worker ran {seen} jobs, not {count}")
    return spent


def compare(url: str, jobs: int = 20_000) -> dict[str, Any]:
    """Fill a queue of its own with `jobs`, drain it in alternating slices, and return rates and their ratio."""
    queue = "bench"
    spent = {"plain": 0.0, "worker": 0.0}
    with psycopg.connect(url, autocommit=True) as conn:
        migrate(conn)
        conn.execute("delete from que_jobs where queue = %s", (queue,))
        fill = "insert into que_jobs (queue, job_class, args) select %s, 'bench', '[1]' from generate_series(1, %s)"
        conn.execute(fill, (queue, jobs))
        ways: list[tuple[str, Callable[[str, str, int], float]]]
        ways = [("plain", drain_plainly), ("worker", drain_with_worker)]
        for start in range(0, jobs, 2 * SLICE):
            share = min(SLICE, (jobs - start) // 2)
            for name, drain in ways if start % (4 * SLICE) else reversed(ways):
                spent[name] += drain(url, queue, share)
        left = conn.execute("select count(*) from que_jobs where queue = %s", (queue,)).fetchone()
    if left != (0,):
        raise RuntimeError(f"{left} jobs were left over")
    rates = {name: jobs / 2 / seconds for name, seconds in spent.items()}
    return {
        "jobs": jobs,
        "plain_per_s": round(rates["plain"]),
        "worker_per_s": round(rates["worker"]),
        "ratio": round(rates["worker"] / rates["plain"], 2),
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("url", nargs="?")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="write the JSON here, too")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        found = compare(options.url or stack.enter_context(testing.server()).url, options.jobs)
    if options.out:
        options.out.write_text(json.dumps(found) + "\n")
    line = "que: four round trips a job {plain_per_s}/s, QueWorker {worker_per_s}/s, {ratio} times ({jobs} jobs)"
    sys.stdout.write((json.dumps(found) if options.json else line.format(**found)) + "\n")


if __name__ == "__main__":
    main()
