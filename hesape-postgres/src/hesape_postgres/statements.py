"""Every statement, one constant each. `{jobs}` and the like become the tables' names, see `Bound`.

State: 0 ready, 1 scheduled, 2 reserved, 3 failed. Times are microseconds since the epoch, by the server's clock at the
start of the statement: `now()` would be the start of a lent transaction, and no index serves `clock_timestamp()` (T2).

Claims, leases and rescues skip locked rows, so that nobody waits for a row that somebody else holds. What is picked is
materialized before it is joined: an `in (select ... limit n)` claims every row under some plans (L7).
"""

from __future__ import annotations

from typing import Final

NOW: Final = "(date_part('epoch', statement_timestamp()) * 1000000)::bigint"
"""By double precision, exact to the microsecond for centuries and five times as quick as numeric."""
PROMOTED: Final = 1000
ROW: Final = """\
j.id::text, j.envelope, j.tenant, j.name, j.queue, j.priority, j.due_us, j.attempts, j.lapses, j.exceptions,
  j.last_error, j.reserved_us, j.pushed_us, j.retried_us, j.failed_us"""
"""The columns of a `records.Row`, in its order."""
STATE: Final = "j.state + 0"
"""The state of a row found by its id, in a form that no index of one state fits: a plan made early would take that."""
CURRENT: Final = f"{STATE} = 2 and j.reserved_us > {NOW}"
"""What a delivery must be, beside its token, to be settled (L4)."""
UNHELD: Final = "worker = '', reserved_us = null, claimed_us = null"
FREE: Final = f"token = null, {UNHELD}"
"""What is cleared when a delivery ends without an outcome, which nobody may repeat."""
ARRIVED: Final = "arrival = pg_current_xact_id()"
"""Whatever makes a row wait again says in which transaction: claims look at such rows wherever their mark is."""
LAPSED: Final = f"state = 0, {ARRIVED}, lapses = least(j.lapses, 2147483646) + 1, {FREE}"
"""The end of such a delivery. Whatever number was forged, none overflows: that would stop every claim (G8)."""
KEYS: Final = "unnest(%(ids)s::uuid[], %(tokens)s::uuid[]) with ordinality k(id, token, place)"


class Bound(dict[str, bytes]):
    """Statements with the names of one store's tables: `sql[CLAIM]`."""

    def __init__(self, schema: str, prefix: str) -> None:
        """Take a schema and a prefix that need no quoting inside the quotes."""
        super().__init__()
        tables = ("jobs", "entries", "workers", "paused", "meta")
        self._names = {name: f'"{schema}".{prefix}{name}' for name in tables} | {
            "schema": f'"{schema}"',
            "prefix": prefix,
        }

    def text(self, template: str) -> str:
        """A template with its names."""
        for name, table in self._names.items():
            template = template.replace(f"{{{name}}}", table)
        return template

    def __missing__(self, template: str) -> bytes:
        """Fill a template once."""
        filled = self[template] = self.text(template).encode()
        return filled


# Storing. Due is the later of now and what was asked for; greatest() passes over null (G4, O1).

STORE_ONE: Final = f"""\
insert into {{jobs}} as j (id, queue, tenant, name, envelope, state, priority, due_us, pushed_us)
select %(id)s::uuid, %(queue)s, %(tenant)s, convert_from(%(name)b, 'UTF8'), %(envelope)b,
  (w.due_us > w.now_us)::int, %(priority)s, w.due_us, w.now_us
from (select {NOW} as now_us, greatest({NOW} + %(delay)s::bigint, %(run_at)s::bigint) as due_us) w
on conflict (id) do nothing
returning j.due_us > j.pushed_us"""

# One JSON document is the cheapest way for many rows to pass the client library: an array is built value by value.
_MANY = f"""\
insert into {{jobs}} as j (id, queue, tenant, name, envelope, state, priority, due_us, pushed_us)
select r.i, r.q, r.t, r.n, decode(r.e, 'base64'), (w.due_us > w.now_us)::int, r.p, w.due_us, w.now_us
from json_to_recordset(%(rows)s::json)
  as r(i uuid, q text, t text, n text, e text, p smallint, d bigint, a bigint, o integer),
  lateral (select {NOW} as now_us, greatest({NOW} + r.d, r.a) as due_us) w
order by r.o"""
STORE_MANY: Final = f"{_MANY}\nreturning j.queue, j.due_us > j.pushed_us"
STORE_MISSING: Final = f"""\
{_MANY}
on conflict (id) do nothing
returning j.id::text, j.queue, j.due_us > j.pushed_us"""

COPY: Final = """\
copy {jobs} (id, queue, tenant, name, envelope, state, priority, due_us, pushed_us) from stdin (format binary)"""

STORED: Final = "select j.id::text, j.tenant, j.envelope from {jobs} j where j.id = any(%(ids)s::uuid[])"

# In the order of keys, so that two pushes never wait for each other crosswise.
TAKE_UNIQUE: Final = f"""\
insert into {{entries}} as e (key, owner, expires_us)
select k, o, {NOW} + ttl from unnest(%(keys)s::text[], %(owners)s::text[], %(ttls)s::bigint[]) u(k, o, ttl) order by k
on conflict (key) do update set owner = excluded.owner, count = 0, expires_us = excluded.expires_us
  where e.expires_us <= {NOW}
returning key"""

# Settling. A row that was settled in the same way under the same token is a repeat (L4).

DELETE: Final = f"""\
delete from {{jobs}} j using {KEYS}
where j.id = k.id and j.token = k.token and {CURRENT}
returning k.place"""

PRESENT: Final = "select j.id::text from {jobs} j where j.id = any(%(ids)s::uuid[])"

RELEASE: Final = f"""\
with released as (
  update {{jobs}} j set seq = default, state = (%(delay)s::bigint > 0)::int, {ARRIVED},
    due_us = {NOW} + %(delay)s::bigint,
    attempts = greatest(j.attempts - %(unspent)s::int, 0), lapses = 0, exceptions = %(exceptions)s,
    last_error = convert_from(%(error)b::bytea, 'UTF8'), {UNHELD}
  where j.id = %(id)s::uuid and j.token = %(token)s::uuid and {CURRENT}
  returning j.queue
)
select queue from released
union all
select null from {{jobs}} j where id = %(id)s::uuid and token = %(token)s::uuid and {STATE} in (0, 1)"""

FAIL: Final = f"""\
with parked as (
  update {{jobs}} j set state = 3, failed_us = {NOW}, lapses = 0, exceptions = %(exceptions)s,
    last_error = convert_from(%(error)b::bytea, 'UTF8'), {UNHELD}
  where j.id = %(id)s::uuid and j.token = %(token)s::uuid and {CURRENT}
  returning 1
)
select 1 from parked
union all
select 1 from {{jobs}} j where id = %(id)s::uuid and token = %(token)s::uuid and {STATE} = 3"""

LOOK_LEASES: Final = f"""\
select k.place, j.reserved_us from {{jobs}} j join {KEYS} on j.id = k.id and j.token = k.token where {CURRENT}"""

# What somebody has locked keeps its deadline and is reported from the snapshot.
EXTEND: Final = f"""\
with found as materialized (
  select k.place, j.id, j.reserved_us from {{jobs}} j join {KEYS} on j.id = k.id and j.token = k.token where {CURRENT}
), free as materialized (
  select j.id from {{jobs}} j join {KEYS} on j.id = k.id and j.token = k.token where {CURRENT}
  for update of j skip locked
), moved as (
  update {{jobs}} j set reserved_us = greatest(j.reserved_us, {NOW} + %(lease)s::bigint) from free where j.id = free.id
  returning j.id, j.reserved_us
)
select f.place, coalesce(m.reserved_us, f.reserved_us) from found f left join moved m on m.id = f.id"""

HAND_BACK: Final = f"""\
update {{jobs}} j set state = 0, {ARRIVED}, attempts = j.attempts - 1, {FREE}
from {KEYS} where j.id = k.id and j.token = k.token and {CURRENT}
returning j.queue"""

# Workers.

BEAT: Final = f"""\
with registered as (
  insert into {{workers}} as w (worker, beat_us, until_us, lock_key, pid, server_us)
  values (%(worker)s, {NOW}, {NOW} + %(ttl)s::bigint, %(lock_key)s::bigint, %(pid)s::int, %(server)s::bigint)
  on conflict (worker) do update set beat_us = excluded.beat_us, until_us = excluded.until_us, missing_us = null,
    lock_key = excluded.lock_key, pid = excluded.pid, server_us = excluded.server_us
), ending as materialized (
  select id from {{jobs}} where state = 2 and worker = %(worker)s and reserved_us > {NOW}
    and reserved_us < {NOW} + %(lease)s::bigint / 2 and id <> all(%(but)s::uuid[])
  for update skip locked
), renewed as (
  update {{jobs}} j set reserved_us = {NOW} + %(lease)s::bigint from ending where j.id = ending.id
)
select array(select queue from {{paused}})"""

REGISTER_AGAIN: Final = """\
update {workers} set missing_us = null,
  lock_key = %(lock_key)s::bigint, pid = %(pid)s::int, server_us = %(server)s::bigint
where worker = %(worker)s"""

# When this incarnation of the server began: a restart of the postmaster, and also one after a crashed backend, which
# drops every lock as well and resets the statistics.
SERVER: Final = """\
(date_part('epoch', greatest(pg_postmaster_start_time(),
  (select stats_reset from pg_stat_bgwriter))) * 1000000)::bigint"""
HERE: Final = f"select pg_backend_pid(), {SERVER}"
LOCK_SESSION: Final = "select pg_advisory_lock(%(lock_key)s::bigint)"

# Only reads locks: a rescuer that tried one would make its owner fail. A worker whose registration is of an earlier
# incarnation of the server is left to its beats. The first sighting is kept in the row, for every rescuer.
SIGHT: Final = f"""\
with locks as materialized (
  select (classid::bigint << 32) | objid::bigint as key from pg_locks
  where locktype = 'advisory' and objsubid = 1 and granted
    and database = (select oid from pg_database where datname = current_database())
), seen as materialized (
  select w.worker, exists (select from locks where locks.key = w.lock_key)
    or exists (select from pg_stat_activity a where a.pid = w.pid and a.application_name = 'hesape liveness') as alive
  from {{workers}} w where w.lock_key is not null and w.server_us = {SERVER}
)
update {{workers}} w set missing_us = case when seen.alive then null else {NOW} end
from seen where w.worker = seen.worker and (w.missing_us is null) <> seen.alive"""
MISSING_SINCE: Final = f"""\
select {NOW} - missing_us from {{workers}} where missing_us is not null and server_us = {SERVER}"""

ABSENT_US: Final = 600_000
"""How long apart the two sightings are, so that with a rescue a second a job is back within 2 s."""
SERVER_UP_US: Final = 5_000_000
"""How long a server must have been up: a restart drops every lock."""


def _freeing(which: str) -> str:
    return f"""\
with dead as materialized (
  select worker from {{workers}} where {which} for update skip locked
), held as materialized (
  select j.id from dead, lateral (
    select id from {{jobs}} where state = 2 and worker = dead.worker for update skip locked) j
), freed as (
  update {{jobs}} j set {LAPSED} from held where j.id = held.id
  returning j.queue
), forgotten as (
  delete from {{workers}} w using dead where w.worker = dead.worker and not exists (
    select from {{jobs}} j where j.state = 2 and j.worker = w.worker and j.id not in (select id from held))
)
select queue, count(*) from freed group by queue"""


FREE_DEAD: Final = _freeing(
    f"until_us <= {NOW}\n"
    f"    or missing_us <= {NOW} - {ABSENT_US} and server_us = {SERVER} and {SERVER} <= {NOW} - {SERVER_UP_US}"
)
RETIRE: Final = f"""\
insert into {{workers}} (worker, beat_us, until_us) values (%(worker)s, {NOW}, 0)
on conflict (worker) do update set until_us = 0"""
FREE_RETIRED: Final = _freeing("worker = %(worker)s")
SWEEP: Final = f"""\
with old as materialized (
  select key from {{entries}} where expires_us <= {NOW} order by expires_us limit {PROMOTED} for update skip locked
)
delete from {{entries}} e using old where e.key = old.key"""

WORKERS: Final = """\
select w.worker, w.beat_us, count(j.id), min(j.claimed_us)
from {workers} w left join {jobs} j on j.state = 2 and j.worker = w.worker
group by w.worker, w.beat_us order by w.worker"""

# Looking.

COUNTS: Final = f"""\
select count(*) filter (where state = 0 or (state = 1 and due_us <= {NOW}) or (state = 2 and reserved_us <= {NOW})),
  count(*) filter (where state = 1 and due_us > {NOW}),
  count(*) filter (where state = 2 and reserved_us > {NOW}),
  count(*) filter (where state = 3)
from (
  select state, 0::bigint as due_us, 0::bigint as reserved_us from {{jobs}} where state = 0 and queue = %(queue)s
  union all select state, due_us, 0 from {{jobs}} where state = 1 and queue = %(queue)s
  union all select state, 0, reserved_us from {{jobs}} where state = 2 and queue = %(queue)s
  union all select state, 0, 0 from {{jobs}} where state = 3 and queue = %(queue)s) j"""

# From name to name along the four indexes, without reading the jobs between.
QUEUES: Final = """\
with recursive names(queue) as (
  select least(
    (select min(queue) from {jobs} where state = 0), (select min(queue) from {jobs} where state = 1),
    (select min(queue) from {jobs} where state = 2), (select min(queue) from {jobs} where state = 3))
  union all
  select least(
    (select min(queue) from {jobs} where state = 0 and queue > names.queue),
    (select min(queue) from {jobs} where state = 1 and queue > names.queue),
    (select min(queue) from {jobs} where state = 2 and queue > names.queue),
    (select min(queue) from {jobs} where state = 3 and queue > names.queue))
  from names where names.queue is not null
)
select queue from names where queue is not null union select queue from {paused}"""

OLDEST: Final = f"""\
select least(
  (select min(due_us) from {{jobs}} where state = 0 and queue = %(queue)s),
  (select due_us from {{jobs}} where state = 1 and queue = %(queue)s and due_us <= {NOW} order by due_us limit 1),
  (select min(due_us) from {{jobs}} where state = 2 and queue = %(queue)s and reserved_us <= {NOW}))"""

# How long until a claim may find something, 0 or less for now, null for no time known (W1). A forged time is no earlier
# than the epoch: the difference would overflow.
NEXT: Final = f"""\
select min(c.at_us) - {NOW} from unnest(%(queues)s::text[]) q(queue), lateral (
  select least(
    (select 0::bigint from {{jobs}} where state = 0 and queue = q.queue limit 1),
    (select greatest(due_us, 0) from {{jobs}} where state = 1 and queue = q.queue order by due_us limit 1),
    (select greatest(reserved_us, 0) from {{jobs}} where state = 2 and queue = q.queue
     order by reserved_us limit 1)) as at_us) c
where not exists (select from {{paused}} p where p.queue = q.queue)"""

FAILED: Final = f"select {ROW} from {{jobs}} j where j.state = 3"
OF_TENANT: Final = " and j.tenant = %(tenant)s"
OF_QUEUE: Final = " and j.queue = %(queue)s"
BEFORE: Final = " and (j.failed_us, j.id) < (%(failed_us)s::bigint, %(id)s::uuid)"
NEWEST_FIRST: Final = " order by j.failed_us desc, j.id desc limit %(limit)s::bigint"

FIND: Final = f"select j.state, {ROW} from {{jobs}} j where j.id = %(id)s::uuid"

# Repairing. Locked in the order of ids, lest two who repair the same wait crosswise; due one after the other as given.

HOLD: Final = """\
select j.id::text, j.tenant, j.state from {jobs} j where j.id = any(%(ids)s::uuid[]) order by j.id for update"""
RETRY: Final = f"""\
update {{jobs}} j set state = 0, {ARRIVED}, due_us = {NOW} + k.place - 1, attempts = 0, lapses = 0, exceptions = 0,
  last_error = null, token = null, failed_us = null, retried_us = {NOW}
from unnest(%(ids)s::uuid[]) with ordinality k(id, place) where j.id = k.id returning j.queue"""
FORGET: Final = "delete from {jobs} where id = any(%(ids)s::uuid[])"
PRUNE: Final = f"delete from {{jobs}} where state = 3 and failed_us < {NOW} - %(older)s::bigint"
FLUSH: Final = "delete from {jobs} where state = 3"
CLEAR: Final = """\
with gone as materialized (
  select id from {jobs} where state in (0, 1, 2) and queue = %(queue)s order by id for update
)
delete from {jobs} j using gone where j.id = gone.id"""
PAUSE: Final = "insert into {paused} (queue) values (%(queue)s) on conflict do nothing"
RESUME: Final = "delete from {paused} where queue = %(queue)s"

# Coordinating (K1).

LOCK: Final = f"""\
insert into {{entries}} as e (key, owner, expires_us) values (%(key)s, %(owner)s, {NOW} + %(ttl)s::bigint)
on conflict (key) do update set owner = excluded.owner, count = 0, expires_us = excluded.expires_us
  where e.owner = excluded.owner or e.expires_us <= {NOW}
returning 1"""
UNLOCK: Final = f"""\
delete from {{entries}} where key = %(key)s and owner = %(owner)s and expires_us > {NOW} returning 1"""
INCREMENT: Final = f"""\
insert into {{entries}} as e (key, count, expires_us) values (%(key)s, %(by)s::bigint, {NOW} + %(ttl)s::bigint)
on conflict (key) do update set
  count = case when e.expires_us <= {NOW} then excluded.count else e.count + excluded.count end,
  expires_us = case when e.expires_us <= {NOW} then excluded.expires_us else e.expires_us end
returning count, expires_us"""
LOOK_COUNT: Final = f"""\
select e.count, e.expires_us from {{entries}} e where key = %(key)s and expires_us > {NOW}
union all select 0, {NOW} + %(ttl)s::bigint
limit 1"""
READ_FLAG: Final = f"select owner from {{entries}} where key = %(key)s and (expires_us is null or expires_us > {NOW})"
WRITE_FLAG: Final = f"""\
insert into {{entries}} (key, owner, expires_us) values (%(key)s, %(owner)s, {NOW} + %(ttl)s::bigint)
on conflict (key) do update set owner = excluded.owner, count = 0, expires_us = excluded.expires_us"""
ERASE_FLAG: Final = "delete from {entries} where key = %(key)s"

TELL_NOW: Final = f"select {NOW}"

# Waking. Queues come as one array; a channel is the store's own.

NOTIFY: Final = "select pg_notify(%(channel)s, payload) from unnest(%(payloads)s::text[]) payload"
