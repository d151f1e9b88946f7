"""Jobs of a Que table that hesape delivers no more, in a table of its own beside it: `hesape_que_parked`.

Que has no place for them: schema 3 retries for ever. A job moves here, and back, in one statement.
"""

from __future__ import annotations

from typing import Any, Final

from hesape.records import Row
from hesape_postgres.que.bridge_records import Frame, bridged_row

CREATE: Final = """
create table if not exists hesape_que_parked (
    id          uuid     primary key,
    parked_us   bigint   not null,
    tenant      text     not null,
    action      text     not null,
    queue       text     not null,
    priority    smallint not null,
    run_at      timestamptz not null,
    job_id      bigint   not null,
    job_class   text     not null,
    args        json     not null,
    error_count integer  not null,
    last_error  text
)
"""
EXISTS: Final = "select to_regclass('hesape_que_parked') is not null"

NOW: Final = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"

PARK: Final = f"""
with gone as (
  delete from que_jobs
   where queue = %(queue)s and priority = %(priority)s and run_at = %(run_at)s and job_id = %(job_id)s
  returning *
)
insert into hesape_que_parked
       (id, parked_us, tenant, action, queue, priority, run_at, job_id, job_class, args, error_count, last_error)
select %(id)s, ({NOW}), %(tenant)s, %(action)s, queue, priority, run_at, job_id, job_class, args,
       %(error_count)s, coalesce(%(last_error)s, last_error)
  from gone
    on conflict (id) do update
   set parked_us = excluded.parked_us, args = excluded.args, job_class = excluded.job_class,
       error_count = excluded.error_count, last_error = excluded.last_error
"""

_COLUMNS = """
queue, priority, timestamptz_send(run_at), job_id, job_class, convert_to(args::text, 'UTF8'), error_count,
last_error, tenant, action, parked_us
"""
_SEEN = "queue = %(queue)s and (%(tenant)s::text is null or tenant = %(tenant)s)"

FAILED: Final = f"""
select {_COLUMNS}
  from hesape_que_parked
 where {_SEEN} and (%(before_us)s::bigint is null or (parked_us, id) < (%(before_us)s::bigint, %(before_id)s::uuid))
 order by parked_us desc, id desc
 limit %(limit)s
"""
FIND: Final = f"select {_COLUMNS} from hesape_que_parked where {_SEEN} and id = any(%(ids)s::uuid[])"
LOCK_PARKED: Final = f"select id::text from hesape_que_parked where {_SEEN} and id = any(%(ids)s::uuid[]) for update"
RETRY: Final = f"""
with gone as (delete from hesape_que_parked where {_SEEN} and id = any(%(ids)s::uuid[]) returning *)
insert into que_jobs (queue, priority, run_at, job_id, job_class, args)
select queue, priority, now(), job_id, job_class, args from gone
"""
FORGET: Final = f"delete from hesape_que_parked where {_SEEN} and id = any(%(ids)s::uuid[])"
PRUNE: Final = f"""
delete from hesape_que_parked
 where queue = %(queue)s and (%(age)s::bigint is null or parked_us < ({NOW}) - %(age)s::bigint)
"""


def parked_row(columns: tuple[Any, ...], frame: Frame) -> Row:
    """A parked job as core reads it, under the tenant and the action that it had."""
    *stored, last_error, tenant, action, parked_us = columns
    row = bridged_row(tuple(stored), last_error, frame._replace(tenant=tenant, action=action), None)
    return row._replace(attempts=row.exceptions, failed_us=parked_us)
