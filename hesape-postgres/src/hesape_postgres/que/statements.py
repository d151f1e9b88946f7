"""The statements of Que's schema 3, one constant each.

They name `que_jobs` bare, as the Ruby and Go clients do, so the connection's search path finds the table. Every
statement that touches one job names its full key: the key moves when a job fails, and whoever holds only the old key
must not touch the new row. Each is a statement of its own and never a part of a larger one, because a snapshot is taken
per statement and the double check needs one that is younger than the lock.
"""

from __future__ import annotations

from typing import Final

INSERT: Final = """
insert into que_jobs (queue, priority, run_at, job_class, args)
select coalesce(%s::text, ''), coalesce(%s::smallint, 100), coalesce(%s::timestamptz, now()), job_class,
       coalesce(convert_from(%s::bytea, 'UTF8')::json, '[]'::json)
  from (values (%s::text)) as given (job_class)
 where job_class is not null
returning queue, priority, timestamptz_send(run_at), job_id, job_class, convert_to(args::text, 'UTF8'), error_count
"""
"""Queue, priority, run_at, args, type; null is the default. Nothing is inserted without a type: see `prepare`."""

# The walk goes from key to key along the primary key, which is the order in which jobs are taken. A plain select with
# the lock call in it may lock every row that it reads; here each step is one index probe and one lock attempt, and
# `held` stops it by itself under any plan, so nothing depends on how lazily a LIMIT is executed.
LOCK: Final = """
with recursive walk as (
  (select head.*, pg_try_advisory_lock(head.job_id) as taken, 0 as held
     from (select queue, priority, run_at, job_id, job_class, args, error_count
             from que_jobs
            where queue = %(queue)s and run_at <= now()
            order by priority, run_at, job_id
            limit 1) as head)
  union all
  (select later.*, pg_try_advisory_lock(later.job_id), walk.held + walk.taken::int
     from walk
    cross join lateral
          (select queue, priority, run_at, job_id, job_class, args, error_count
             from que_jobs
            where queue = %(queue)s and run_at <= now()
              and (priority, run_at, job_id) > (walk.priority, walk.run_at, walk.job_id)
            order by priority, run_at, job_id
            limit 1) as later
    where walk.held + walk.taken::int < %(most)s)
)
select queue, priority, timestamptz_send(run_at), job_id, job_class, convert_to(args::text, 'UTF8'), error_count
  from walk
 where taken
"""
"""Locks the first `most` jobs of `queue` that are due and that nobody holds, and returns them in order."""

# A session is granted its own locks again and again, so one that keeps several while it looks for more leaves them out.
LOCK_OTHERS: Final = LOCK.replace("run_at <= now()", "run_at <= now() and job_id <> all(%(held)s::bigint[])")
"""As LOCK, passing over the jobs in `held`."""

_ROW = "queue = %s and priority = %s and run_at = %s and job_id = %s"

CHECK: Final = f"select last_error from que_jobs where {_ROW}"
"""The double check: a row only if the job is still there under the key that was locked."""

DESTROY: Final = f"delete from que_jobs where {_ROW}"

SET_ERROR: Final = f"""
update que_jobs
   set error_count = %s, run_at = now() + %s * interval '1 second', last_error = %s
 where {_ROW}
"""
"""New count, delay in seconds, text, key."""

UNLOCK: Final = "select pg_advisory_unlock(%s::bigint)"

_KEYS = "unnest(%s::smallint[], %s::timestamptz[], %s::bigint[])"

# The LIMIT keeps the subquery from being merged into a join of the whole table: each key is one probe.
CHECK_MANY: Final = f"""
select key.job_id, still.last_error
  from {_KEYS} as key (priority, run_at, job_id)
 cross join lateral
       (select last_error from que_jobs
         where queue = %s and priority = key.priority and run_at = key.run_at and job_id = key.job_id
         limit 1) as still
"""

DESTROY_MANY: Final = f"""
delete from que_jobs j
 using {_KEYS} as done (priority, run_at, job_id)
 where j.queue = %s and j.priority = done.priority and j.run_at = done.run_at and j.job_id = done.job_id
returning j.job_id
"""

UNLOCK_MANY: Final = "select count(*) from unnest(%s::bigint[]) as id where pg_advisory_unlock(id)"
"""How many of these locks this session held and gave back."""

# Locks are a session's, not a transaction's: after a statement that failed half-way some may be left.
UNLOCK_OTHERS: Final = """
select count(pg_advisory_unlock((classid::bigint << 32) | objid::bigint))
  from pg_locks
 where locktype = 'advisory' and objsubid = 1 and pid = pg_backend_pid()
   and (classid::bigint << 32) | objid::bigint <> all(%s::bigint[])
"""

# A bigint advisory lock is one row of pg_locks with objsubid 1 and the key split into two unsigned halves. Locks of
# other databases, two-integer locks (objsubid 2), shared ones and those only waited for belong to somebody else.
RUNNING: Final = """
select (classid::bigint << 32) | objid::bigint as job_id, pid
  from pg_locks
 where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ExclusiveLock'
   and database = (select oid from pg_database where datname = current_database())
"""

JOB_STATS: Final = f"""
select queue, job_class, count(*), count(running.job_id), count(*) filter (where error_count > 0), max(error_count),
       timestamptz_send(min(run_at))
  from que_jobs
  left join ({RUNNING}) as running using (job_id)
 group by queue, job_class
 order by count(*) desc, queue, job_class
"""

WORKER_STATES: Final = f"""
select queue, priority, timestamptz_send(run_at), job_id, job_class, convert_to(args::text, 'UTF8'), error_count,
       last_error, pid, backend.state, timestamptz_send(state_change), query, timestamptz_send(query_start),
       timestamptz_send(xact_start), coalesce(wait_event_type = 'Lock', false)
  from que_jobs
  join ({RUNNING}) as running using (job_id)
  join pg_stat_activity as backend using (pid)
 order by queue, priority, run_at, job_id
"""
