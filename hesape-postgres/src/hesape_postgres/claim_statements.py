"""The statements of a claim: one deletes what is done, promotes what became due, and claims; its last row tells more.

In it the deletion is forced to be first: after the claim two workers could wait for each other's rows. It waits only
for a row that somebody's claim looks at, and such a claim waits for nobody.

Each is there twice. While some transaction holds an old snapshot, the indexes keep an entry for every job that came and
went, and a plain claim passes over all of them. A marked one begins at marks (see `marks`): each says that of the rows
that some snapshot could see none lay before it. What else can lie there arrived later, in a transaction that the
snapshot couldn't see, so it is found by its `arrival`. That is exact, whoever pushed it, if the row says the truth: one
made ready by hand without an `arrival`, or restored with an old one, may stay behind a mark until that ends.
"""

from __future__ import annotations

from typing import Final

from hesape_postgres.statements import ARRIVED, DELETE, LAPSED, NOW, PROMOTED, ROW, SERVER

BEHIND_US: Final = 200_000
"""How far back ends of leases are looked at again, for claims that were committed late."""

# A mark that another incarnation of the server made, as before a failover or a crash, says nothing: its transactions
# have other numbers, or the same ones again, and every row counts as arrived later. On servers before 15 to ask for the
# incarnation reads a file of statistics. `unseen` are the transactions that a mark's snapshot couldn't see: those that
# ran, and those that came. Not all since the first of them: it may be the one that holds the old snapshot.
_MARKS = f"""\
marks as materialized (
  select q.queue, q.priority, q.due_us, q.seq, q.ripe_us, case when s.same then q.lease_us else 0 end as lease_us,
    case when s.same then q.snapshot else '1:1:' end as snapshot
  from unnest(%(queues)s::text[], %(priorities)s::smallint[], %(dues)s::bigint[], %(seqs)s::bigint[],
      %(ripes)s::bigint[], %(leases)s::bigint[], %(snapshots)s::pg_snapshot[], %(servers)s::bigint[])
    q(queue, priority, due_us, seq, ripe_us, lease_us, snapshot, server),
    lateral (select q.server in (0, {SERVER}) as same) s
), unseen as materialized (
  select q.queue, pg_snapshot_xmax(q.snapshot) as first, '18446744073709551615'::xid8 as last from marks q
  union all select q.queue, x, x from marks q, pg_snapshot_xip(q.snapshot) x
), """

# Of the queue `q`: ready rows, those that are due of the scheduled ones, and leases that have run out.
_READY = "{jobs} where state = 0 and queue = q.queue"
_READY_FROM_MARK = f"{_READY} and (priority, due_us, seq) >= (q.priority, q.due_us, q.seq)"
_RIPE = f"{{jobs}} where state = 1 and queue = q.queue and due_us <= {NOW}"
_RIPE_FROM_MARK = f"{_RIPE} and due_us >= q.ripe_us"
_LAPSED = f"{{jobs}} where state = 2 and queue = q.queue and reserved_us <= {NOW}"
_LAPSED_FROM_MARK = f"{_LAPSED} and reserved_us >= q.lease_us"
_IN_ORDER = "order by priority, due_us, seq"
_FREELY = "for update skip locked"


def _arrived(state: int, before: str) -> str:
    """Rows before the mark that its snapshot couldn't see.

    Their state is in a form that no index of one state fits: by those everything before the mark would be read. And the
    range of transactions is the outer side of the join under any plan, as nothing with an offset is pulled up.
    """
    return f"""unseen u, lateral (
        select id, priority, due_us, seq from {{jobs}}
        where state in (0, 1) and state + 0 = {state} and arrival between u.first and u.last and queue = u.queue
          and {before} offset 0) a
      where u.queue = q.queue"""


_READY_ARRIVED = _arrived(0, "(priority, due_us, seq) < (q.priority, q.due_us, q.seq)")
_RIPE_ARRIVED = _arrived(1, f"due_us < least(q.ripe_us, {NOW})")


def _locked(arrived: str, still: str) -> str:
    """The ids of `arrived` in its order, locked one by one as they are taken, of rows that are `still` so then."""
    return f"""select j.id from (
      select id from {arrived}) a, lateral (
      select id from {{jobs}} where id = a.id and {still} {_FREELY}) j"""


def _joined(arrived: str, others: str) -> str:
    """What arrived before the mark, and then the others, of which none is touched before it is needed."""
    return f"""select * from (
      {arrived}) arrived
    union all select * from (
      {others}) others"""


def _waiting(*, marked: bool) -> str:
    """Ready rows in order, locked one by one as they are taken."""
    taken = f"{_IN_ORDER} limit %(n)s::bigint {_FREELY}"
    if marked:
        return _joined(
            _locked(f"{_READY_ARRIVED} {_IN_ORDER}", "state + 0 = 0"), f"select id from {_READY_FROM_MARK} {taken}"
        )
    return f"select id from {_READY} {taken}"


def _ripe(*, marked: bool) -> str:
    """Scheduled rows that are due, the first ones."""
    taken = f"order by due_us limit {PROMOTED} {_FREELY}"
    if marked:
        arrived = _locked(f"{_RIPE_ARRIVED} order by due_us", f"state + 0 = 1 and due_us <= {NOW}")
        return _joined(arrived, f"select id from {_RIPE_FROM_MARK} {taken}")
    return f"select id from {_RIPE} {taken}"


def _queues(*, marked: bool) -> str:
    return "marks q" if marked else "unnest(%(queues)s::text[]) q(queue)"


# The queues are drained in the order of the array: the function scan is the outer side of the lateral join under any
# plan, and paused ones are left out by a filter, since a join could put the queues in another order.
def _claims(allowed: str, *, marked: bool) -> str:
    return f"""\
picked as materialized (
  select c.id from {_queues(marked=marked)}, lateral (
    {_waiting(marked=marked)}) c
  where q.queue <> all (array(select queue from {{paused}})) and {allowed}
  limit %(n)s::bigint
), claimed as (
  update {{jobs}} j set state = 2, attempts = least(j.attempts, 2147483646) + 1, token = %(token)s::uuid,
    worker = %(worker)s, claimed_us = {NOW}, reserved_us = {NOW} + %(lease)s::bigint
  from picked where j.id = picked.id
  returning {ROW}, j.seq
)
select * from claimed"""


# For each queue where the first row lay that this statement's snapshot saw, whoever has it locked: the next marks.
_NEW_MARKS = f"""\
(select json_build_object('server', {SERVER}, 'snapshot', pg_current_snapshot()::text,
    'queues', json_object_agg(q.queue, json_build_array(
      coalesce(w.priority, q.priority), coalesce(w.due_us, q.due_us), coalesce(w.seq, q.seq),
      coalesce(r.due_us, {NOW}), greatest(coalesce(l.reserved_us, {NOW}), 0) - {BEHIND_US})))::text
   from marks q left join lateral (
    {
    _joined(
        f"select priority, due_us, seq from {_READY_ARRIVED} {_IN_ORDER} limit 1",
        f"select priority, due_us, seq from {_READY_FROM_MARK} {_IN_ORDER} limit 1",
    )
} limit 1) w on true
   left join lateral (
    {
    _joined(
        f"select due_us from {_RIPE_ARRIVED} order by due_us limit 1",
        f"select due_us from {_RIPE_FROM_MARK} order by due_us limit 1",
    )
} limit 1) r on true
   left join lateral (
    select reserved_us from {_LAPSED_FROM_MARK} order by reserved_us limit 1) l on true)"""


# What was promoted isn't seen by a claim in the same statement, which therefore claims nothing then: a claim alone
# follows, or this again when a full share was promoted, for an earlier priority may be among what is left (O1). It
# claims nothing either when this very claim was executed before (L4). Columns are computed from left to right: how long
# it took has no part in the deletion, which may wait, nor in the look ahead, which marks don't shorten.
def _step(*, marked: bool) -> str:
    queues = _queues(marked=marked)
    return f"""\
with {_MARKS if marked else ""}gone as (
  {DELETE}
), deleted as materialized (
  select coalesce(string_agg(place::text, ','), '') as places from gone
), may as materialized (
  select (select places from deleted) is not null and not exists (
    select from {{jobs}} where state = 2 and worker = %(worker)s and token = %(token)s::uuid) as go_on,
    clock_timestamp() as began_at
), due as materialized (
  select c.id from {queues}, lateral (
    {_ripe(marked=marked)}) c
  where (select go_on from may) limit {PROMOTED}
), lapsed as materialized (
  select c.id from {queues}, lateral (
    select id from {_LAPSED_FROM_MARK if marked else _LAPSED}
    order by reserved_us limit {PROMOTED} {_FREELY}) c
  where (select go_on from may) limit {PROMOTED}
), ripened as (
  update {{jobs}} j set state = 0, {ARRIVED} from due where j.id = due.id
), freed as (
  update {{jobs}} j set {LAPSED} from lapsed where j.id = lapsed.id
), found as materialized (
  select go_on, began_at, (select count(*)::int from due) as due, (select count(*)::int from lapsed) as lapsed from may
), {_claims("(select go_on and due + lapsed = 0 from found)", marked=marked)}
union all
select null, null, array_to_string(array(select queue from {{paused}}), ','), deleted.places, null, null, {NOW},
  greatest(found.due, found.lapsed), found.due + found.lapsed, found.go_on::int,
  {_NEW_MARKS if marked else "null"},
  (date_part('epoch', clock_timestamp() - found.began_at) * 1000000)::bigint,
  (select min(c.due_us) from unnest(%(queues)s::text[]) q(queue), lateral (
    select due_us from {{jobs}} where state = 1 and queue = q.queue and due_us > {NOW} order by due_us limit 1) c
   where q.queue <> all (array(select queue from {{paused}}))), null, null, null
from found, deleted"""


STEP: Final = _step(marked=False)
STEP_MARKED: Final = _step(marked=True)
CLAIM: Final = f"with {_claims('true', marked=False)}"
CLAIM_MARKED: Final = f"with {_MARKS}{_claims('true', marked=True)}"
CLAIMED: Final = f"""\
select {ROW}, j.seq from {{jobs}} j where j.state = 2 and j.worker = %(worker)s and j.token = %(token)s::uuid"""
