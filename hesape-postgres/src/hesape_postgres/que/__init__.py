"""Que: a Python member of a table that Ruby and Go programs share.

The table is `que_jobs`, schema 3. A job is locked by a session-level advisory lock on its id, worked, and deleted; any
number of programs in any of the three languages may do that on one table at the same time.

What a function writes on `job.conn` and the deletion of its job are one transaction where it says so: whatever dies
before the commit, neither happened, and the job runs again.

    def pay(job):
        with job.conn.transaction():
            job.conn.execute("insert into ledger values (%s)", (job.id,))
            job.delete()

    with ConnectionPool(url) as pool, QueWorkerPool(QueClient(pool), {"Pay": pay}, count=4):
        signal.pause()
"""

from hesape.errors import AlreadySettledError, DetachedError
from hesape_postgres.que.client import QueClient, default_retry_delay
from hesape_postgres.que.errors import AgainError, MissingTypeError
from hesape_postgres.que.job import QueJob
from hesape_postgres.que.prepare import prepare_statements, prepare_statements_with_preparer
from hesape_postgres.que.schema import migrate, schema_version
from hesape_postgres.que.stats import JobStats, WorkerState, job_stats, worker_states
from hesape_postgres.que.worker import QueWorker
from hesape_postgres.que.worker_pool import QueWorkerPool

__all__ = [
    "AgainError",
    "AlreadySettledError",
    "DetachedError",
    "JobStats",
    "MissingTypeError",
    "QueClient",
    "QueJob",
    "QueWorker",
    "QueWorkerPool",
    "WorkerState",
    "default_retry_delay",
    "job_stats",
    "migrate",
    "prepare_statements",
    "prepare_statements_with_preparer",
    "schema_version",
    "worker_states",
]
