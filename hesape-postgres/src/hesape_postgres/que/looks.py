"""What the bridge counts: Que's rows beside the locks that some session holds, whichever program's it is."""

from __future__ import annotations

from typing import Final

from hesape_postgres.que.statements import RUNNING

COUNTS: Final = f"""
select count(*) filter (where running.job_id is null and run_at <= now()),
       count(*) filter (where running.job_id is null and run_at > now()),
       count(running.job_id),
       (select count(*) from hesape_que_parked where queue = %(queue)s)
  from que_jobs
  left join ({RUNNING}) as running using (job_id)
 where queue = %(queue)s
"""
OLDEST: Final = f"""
select timestamptz_send(min(run_at))
  from que_jobs
 where queue = %(queue)s and run_at <= now() and job_id not in (select job_id from ({RUNNING}) as running)
"""
QUEUED: Final = """
select exists (select from que_jobs where queue = %(queue)s)
    or exists (select from hesape_que_parked where queue = %(queue)s)
"""
NEXT_DUE: Final = "select timestamptz_send(min(run_at)) from que_jobs where queue = %s and run_at > now()"
CLEAR: Final = "delete from que_jobs where queue = %s"
