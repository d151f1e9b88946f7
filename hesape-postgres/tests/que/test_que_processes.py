from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from psycopg_pool import ConnectionPool

from hesape_postgres.que import QueClient, QueJob, QueWorkerPool

PROGRAM = """
import os, sys, time
from psycopg_pool import ConnectionPool
from hesape_postgres.que import QueClient, QueWorkerPool

def count(job):
    job.conn.execute("insert into runs values (%s, %s)", (job.id, os.getpid()))

def stall(job):
    print("running", flush=True)
    time.sleep(600)

count_all = lambda job: seen.append(job.id)
seen = []
with ConnectionPool(sys.argv[1], min_size=0, max_size=4) as pool:
    with QueWorkerPool(QueClient(pool), {"Count": count, "CountAll": count_all, "Stall": stall}, 2, interval=0.05):
        sys.stdin.read()
    for job_id in seen:
        with pool.connection() as conn:
            conn.execute("insert into runs values (%s, %s)", (job_id, os.getpid()))
"""


def start(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )


def test_8_threads_and_4_processes_work_5000_jobs_once_each(url: str, conn: Any, until: Any, held: Any) -> None:
    conn.execute("create table runs (job_id bigint, pid int)")
    conn.execute(
        "insert into que_jobs (job_class) select case when n % 2 = 0 then 'Count' else 'CountAll' end"
        " from generate_series(1, 5000) n"
    )
    ran: list[int | None] = []

    def count(job: QueJob) -> None:
        assert job.conn is not None
        job.conn.execute("insert into runs values (%s, 0)", (job.id,))

    processes = [start(url) for _ in range(4)]
    with ConnectionPool(url, min_size=0, max_size=8) as pool:
        work_map = {"Count": count, "CountAll": lambda job: ran.append(job.id)}
        with QueWorkerPool(QueClient(pool), work_map, 8, interval=0.05):
            until(lambda: conn.execute("select from que_jobs").rowcount == 0, within_s=60)
        stats = pool.get_stats()
        assert stats["pool_available"] == stats["pool_size"]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    conn.cursor().executemany("insert into runs values (%s, 0)", [(job_id,) for job_id in ran])
    assert conn.execute("select count(*), count(distinct job_id) from runs").fetchall() == [(5000, 5000)]
    assert conn.execute("select count(distinct pid) from runs").fetchall()[0][0] == 5
    assert held() == 0


def test_a_worker_killed_with_9_frees_its_job_when_the_server_drops_its_session(
    url: str, client: Any, until: Any, held: Any
) -> None:
    stored = client.enqueue(QueJob("Stall"))
    process = start(url)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    assert client.lock_job() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: held() == 0, within_s=2)
    with client.lock_job() as job:
        assert (job.id, job.error_count) == (stored.id, 0)


def test_8_threads_that_lock_by_hand_get_different_jobs(url: str, conn: Any, held: Any) -> None:
    conn.execute("insert into que_jobs (job_class) select 'Any' from generate_series(1, 500)")
    ran: list[Any] = []

    def work(client: Any) -> None:
        while (job := client.lock_job()) is not None:
            with job:
                ran.append(job.id)
                job.delete()

    with ConnectionPool(url, min_size=0, max_size=8) as pool:
        threads = [threading.Thread(target=work, args=(QueClient(pool),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(ran) == list(range(1, 501))
    assert held() == 0
