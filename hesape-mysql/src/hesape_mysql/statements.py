"""Every statement on jobs. `{p}` is the tables' prefix, `%(name)s` a literal made by `records`.

Values are hexadecimal literals: they mean the same under every character set, sql_mode and escaping rule that a lent
connection may have set. The store's clock is `{now}`, the statement's own, which no session's time zone moves (T2).

A row's place in the index `line` (queue, state, place, at_us, seq) is its place in its queue: `place` and `at_us` say
something else in each state, so that one index serves the claim in its full order, what falls due, leases that end,
and the failed list, each a range of its own that the others don't slow down (O2).

    state          place      at_us                holder            mark
    0 ready        priority   when it became due   0                 0
    1 scheduled    0          when it falls due    0                 0
    2 reserved     0          the lease's end      its worker, or 0  the token's first eight bytes
    3 failed       0          when it failed       its tenant        when it failed

Who waits for whom: a transaction waits for rows in its first statement alone, by primary keys in ascending order; a
push waits for another with the same ids or unique keys, each in ascending order. Everything after skips what is locked
and updates only what it locked itself, at most behind a scan that is just passing the row's entry in `line`; a scan
waits for nobody. So no two wait for each other. What goes by primary key forces that index: on a small table the
optimizer would rather read, and lock, all of it.

MariaDB finds a deadlock even so, now and then in a crowd on a busy machine: to skip a locked row it queues for it and
steps back at once, and who looks for a cycle in that moment takes it for one that waits. To make that rare, a claim
holds nothing but what it claims while it scans, and what fell due is found in the order of the index by a transaction
that ends before. The one that MariaDB rolls back has written nothing (`StoreBusyError`), and its call is repeated.
"""

from __future__ import annotations

import attrs

NOW = "timestampdiff(microsecond,'1970-01-01',utc_timestamp(6))"
NO_TOKEN = "x'00000000000000000000000000000000'"  # noqa: S105 - the absence of one

# One column: PyMySQL spends 7 us on each column of each row.
_ROW = (
    "concat(concat_ws(' ', hex(id), state, at_us, priority, due_us, attempts, lapses, exceptions, pushed_us,"
    " retried_us, length(tenant), length(name), length(queue), ifnull(length(last_error), -1)), x'0a',"
    " tenant, name, queue, ifnull(last_error, ''), envelope)"
)
# One more is a number, whatever somebody forged: a sum that overflows would stop every claim (G8).
MOST = 2**31 - 2
_FREE = f"state = 0, place = priority, at_us = due_us, token = {NO_TOKEN}, holder = 0, mark = 0, claimed_us = 0"

# Store.

INSERT = (
    "insert into {p}jobs (id, queue, state, place, at_us, seq, priority, due_us, pushed_us, tenant, name, envelope)"
    " values %(rows)s"
)
# A locking read: under REPEATABLE READ a plain one doesn't see the row that the insert just collided with.
STORED = "select id, tenant, envelope from {p}jobs force index (primary) where id in (%(ids)s) lock in share mode"
TAKE_KEY = "insert into {p}entries (name, value, end_us) values (%(key)s, %(owner)s, {now} + %(ttl_us)d)"

# Claim.

# `for update` without skipping: who holds one of these keeps it for milliseconds, and skipping would lose a deletion.
# What was found must be what is deleted, so both go by one moment: between two a lease may run out. Every row of these
# ids is locked, current or not: the deletion looks at all of them again, and must not wait when it holds some already.
MOMENT = "set @hesape_now = {now}"
AT_MOMENT = "@hesape_now"
LOCKED = "select concat(id, token), %(current)s from {p}jobs force index (primary) where id in (%(ids)s) for update"
# On a lent connection nothing but what is deleted stays locked, for nobody knows how long.
CURRENT = "select concat(id, token) from {p}jobs force index (primary) where %(current)s for update"
# The form with an alias, since only that one takes an index.
DELETE = "delete job from {p}jobs as job force index (primary) where %(current)s"
DELETE_IDS = "delete job from {p}jobs as job force index (primary) where id in (%(ids)s)"
PRESENT = "select id from {p}jobs where id in (%(ids)s)"
# The clock, whether this token was here before, for each queue when the next job falls due and whether a lease ran out,
# and the paused queues. How they look matters: an index range is followed by entries that were deleted and not purged
# yet, and only an equality (`order by ... limit 1`), or a look downwards (`max`), doesn't walk over all of them.
INFO = (
    "select concat_ws(' ', {now},"
    " exists(select 1 from {p}jobs where holder = %(holder)d and mark = %(mark)d and token = %(token)s and state = 2),"
    " %(dues)s, ifnull((select group_concat(queue separator ' ') from {p}paused), ''))"
)
_FALLS_DUE = "(select at_us from {p}jobs where queue = %(queue)s and state = 1 and place = 0 order by at_us limit 1)"
_RAN_OUT = "(select max(at_us) from {p}jobs where queue = %(queue)s and state = 2 and place = 0 and at_us <= {now})"
NEXT_DUE = f"ifnull({_FALLS_DUE}, 0), {_RAN_OUT} is not null"
CLAIMED_BEFORE = (
    f"select {_ROW} from {{p}}jobs where holder = %(holder)d and mark = %(mark)d and token = %(token)s and state = 2"
    " order by priority, due_us, seq"
)
# `skip locked`, so that poppers don't wait for each other (L7). The index is forced since it holds filter and order:
# any other plan would lock, and on a small table the optimizer would choose one.
CLAIM = (
    f"select {_ROW} from {{p}}jobs force index (line) where queue = %(queue)s and state = 0"
    " and not exists (select 1 from {p}paused where queue = %(queue)s)"
    " order by place, at_us, seq limit %(n)s for update skip locked"
)
RESERVE = (
    "update {p}jobs force index (primary) set state = 2, place = 0, at_us = %(until_us)d, token = %(token)s,"
    f" attempts = least(attempts, {MOST}) + 1, holder = %(holder)d, mark = %(mark)d, claimed_us = %(now_us)d"
    " where id in (%(ids)s)"
)
# Found and locked by a statement of its own: in a derived table MariaDB 10.11 waits, whatever the clause says.
FELL_DUE = (
    "select id from {p}jobs force index (line) where queue = %(queue)s and state = 1 and place = 0 and at_us <= {now}"
    " order by at_us, seq limit %(limit)d for update skip locked"
)
LAPSED = (
    "select id from {p}jobs force index (line) where queue = %(queue)s and state = 2 and place = 0 and at_us <= {now}"
    " order by at_us, seq limit %(limit)d for update skip locked"
)
PROMOTE = "update {p}jobs force index (primary) set state = 0, place = priority where id in (%(ids)s)"
LAPSE = f"update {{p}}jobs force index (primary) set {_FREE}, lapses = least(lapses, {MOST}) + 1 where id in (%(ids)s)"

# Settle. By primary key; the token is the fence (L4).

IS_CURRENT = "token = %(token)s and state = 2 and at_us > {now}"
RELEASE = (
    "update {p}jobs force index (primary) set state = %(state)d, place = if(%(state)d = 0, priority, 0),"
    " at_us = {now} + %(delay_us)d, due_us = {now} + %(delay_us)d, seq = {now}, attempts = attempts - %(unspent)d,"
    " lapses = 0, last_error = %(error)s, exceptions = %(exceptions)d, holder = 0, mark = 0, claimed_us = 0"
    f" where id = %(id)s and {IS_CURRENT}"
)
FAIL = (
    "update {p}jobs force index (primary) set state = 3, place = 0, at_us = {now}, lapses = 0, last_error = %(error)s,"
    " exceptions = %(exceptions)d, holder = conv(left(sha2(tenant, 256), 16), 16, 10), mark = {now}, claimed_us = 0"
    f" where id = %(id)s and {IS_CURRENT}"
)
# A locking read for the same reason as STORED. Whose token was cleared matches nobody's.
SETTLED_BY = (
    f"select state from {{p}}jobs where id = %(id)s and token = %(token)s and token <> {NO_TOKEN} lock in share mode"
)
# `skip locked`: an uncommitted settlement of one job never stalls the leases of the others.
UNLOCKED = "select id, at_us from {p}jobs force index (primary) where %(current)s for update skip locked"
DEADLINES = "select @hesape_now, id, token, at_us from {p}jobs where %(current)s"
EXTEND = "update {p}jobs force index (primary) set at_us = greatest(at_us, %(until_us)d) where id in (%(ids)s)"
HAND_BACK = f"update {{p}}jobs force index (primary) set {_FREE}, attempts = attempts - 1 where %(current)s"

# Workers.

REGISTER = (
    "insert into {p}workers (worker, holder, lock_name, session, server, beat_us, end_us)"
    " values (%(worker)s, %(holder)d, %(lock)s, %(session)d, concat(@@hostname, ':', @@port), {now},"
    " {now} + %(ttl_us)d)"
    " on duplicate key update session = values(session), server = values(server), beat_us = values(beat_us),"
    " end_us = values(end_us)"
)
# Found without locks, since this order isn't the primary key's, and then locked by key; `skip locked`, since a
# heartbeat waits for nobody's transaction.
ENDS_SOON = (
    "select id from {p}jobs where holder = %(holder)d and state = 2 and at_us > {now} and at_us < {now} + %(half_us)d"
    " and id not in (%(but)s)"
)
HELD = "select id from {p}jobs where holder = %(holder)d and state = 2"
HOLD = (
    "select id from {p}jobs force index (primary) where id in (%(ids)s) and holder = %(holder)d and state = 2"
    " for update skip locked"
)
RENEW = "update {p}jobs force index (primary) set at_us = {now} + %(lease_us)d where id in (%(ids)s)"
PAUSED = "select queue from {p}paused"
# Who may be dead: silent for its time, or without its lock although it registered on this very server.
SUSPECTS = (
    "select worker, beat_us, end_us <= {now},"
    " is_used_lock(lock_name) is null and server = concat(@@hostname, ':', @@port)"
    " and not exists (select 1 from information_schema.processlist where id = session) from {p}workers"
)
UPTIME = "show global status like 'Uptime'"
# The worker's row is the lock that decides between its death and its next beat.
STILL_SILENT = "select 1 from {p}workers where worker = %(worker)s and beat_us = %(beat_us)d for update"
# What was locked, and so skipped, is freed by the next rescue: until then the worker stays registered. A statement of
# its own, since inside the deletion it would wait for locks.
STILL_HOLDS = "select exists(select 1 from {p}jobs where holder = %(holder)d and state = 2)"
FORGET_WORKER = "delete from {p}workers where worker = %(worker)s"
WORKERS = (
    "select w.worker, w.beat_us, count(j.id), min(j.claimed_us) from {p}workers as w"
    " left join {p}jobs as j on j.holder = w.holder and j.state = 2 group by w.worker, w.beat_us order by w.worker"
)

# Look.

COUNTS = (
    "select state, at_us > {now}, count(*) from {p}jobs force index (line) where queue = %(queue)s"
    " group by state, at_us > {now}"
)
QUEUES = "select distinct queue from {p}jobs union select queue from {p}paused"
OLDEST = (
    "select least("
    "ifnull((select min(oldest) from (select min(at_us) as oldest from {p}jobs force index (line)"
    " where queue = %(queue)s and state = 0 group by place) as ready), %(never)d),"
    "ifnull((select min(at_us) from {p}jobs where queue = %(queue)s and state = 1 and place = 0 and at_us <= {now}),"
    " %(never)d),"
    "ifnull((select min(due_us) from {p}jobs where queue = %(queue)s and state = 2 and place = 0 and at_us <= {now}),"
    " %(never)d))"
)
IS_READY = (
    "exists(select 1 from {p}jobs where queue = %(queue)s and state = 0)"
    " and not exists(select 1 from {p}paused where queue = %(queue)s)"
)
MAY_BE_DUE = (
    "(exists(select 1 from {p}jobs where queue = %(queue)s and state = 0)"
    f" or ifnull({_FALLS_DUE} <= {{now}}, 0) or {_RAN_OUT} is not null)"
    " and not exists(select 1 from {p}paused where queue = %(queue)s)"
)
# Answers with nothing, or with error 1242 when it is true: the shortest reply there is, for the look that a waiting
# worker takes some sixty times a second. `set` would be as short, but it reads with locks, and `do` swallows the error.
ASK_IF = "select if(%(condition)s, (select 1 union select 2), 0) into @hesape_look"
_BEFORE = "(%(failed_us)d < 0 or at_us < %(failed_us)d or (at_us = %(failed_us)d and id < %(id)s))"
FAILED_OF_TENANT = (
    f"select {_ROW} from {{p}}jobs force index (held) where holder = %(holder)d and state = 3 and tenant = %(tenant)s"
    f" and (%(any_queue)d or queue = %(queue)s) and mark <= %(upto_us)d and {_BEFORE}"
    " order by mark desc, id desc limit %(limit)d"
)
FAILED_OF_QUEUE = (
    f"(select {_ROW} as packed, at_us as failed_us, id from {{p}}jobs force index (line) where queue = %(queue)s"
    f" and state = 3 and place = 0 and at_us <= %(upto_us)d and {_BEFORE} order by at_us desc, id desc limit %(limit)d)"
)
FIND = f"select {_ROW} from {{p}}jobs where id = %(id)s"

# Repair.

# Waits for locks, in the order of the primary key.
FIND_ALL = "select id, tenant, state from {p}jobs force index (primary) where id in (%(ids)s) for update"
RETRY = (
    "update {p}jobs force index (primary) set state = 0, place = priority, at_us = {now}, due_us = {now},"
    " seq = {now} + field(id, %(in_order)s), attempts = 0, exceptions = 0, lapses = 0, last_error = null,"
    f" token = {NO_TOKEN}, holder = 0, mark = 0, retried_us = {{now}} where id in (%(ids)s)"
)
# Found without locks; each deletion checks again what it deletes.
OLD_FAILED = (
    "select id from {p}jobs force index (line) where queue = %(queue)s and state = 3 and place = 0"
    " and (%(age_us)d < 0 or at_us < {now} - %(age_us)d)"
)
DELETE_FAILED = "delete job from {p}jobs as job force index (primary) where id in (%(ids)s) and state = 3"
LIVE = "select id from {p}jobs force index (line) where queue = %(queue)s and state in (0, 1, 2)"
DELETE_LIVE = "delete job from {p}jobs as job force index (primary) where id in (%(ids)s) and state <> 3"
PAUSE = "insert ignore into {p}paused (queue) values (%(queue)s)"
RESUME = "delete from {p}paused where queue = %(queue)s"

# Coordinate. `value` is assigned before `end_us`: MySQL evaluates assignments from the left, on what is new.

LOCK = (
    "insert into {p}entries (name, value, end_us) values (%(key)s, %(owner)s, {now} + %(ttl_us)d)"
    " on duplicate key update value = if(end_us <= {now}, values(value), value),"
    " end_us = if(value = values(value), values(end_us), end_us)"
)
# In the transaction that took it, whatever the time: nobody else can take it before that ends.
TAKEN = "select value = %(owner)s from {p}entries where name = %(key)s"
HOLDS = f"{TAKEN} and end_us > {{now}}"
UNLOCK = "delete from {p}entries where name = %(key)s and value = %(owner)s and end_us > {now}"
INCREMENT = (
    "insert into {p}entries (name, value, end_us) values (%(key)s, %(by)d, {now} + %(ttl_us)d)"
    " on duplicate key update value = if(end_us <= {now}, values(value), cast(value as signed) + %(by)d),"
    " end_us = if(end_us <= {now}, values(end_us), end_us)"
)
# In the transaction that counted, whatever the time: between the two statements the counter may have come to its end.
COUNTED = "select cast(value as signed), end_us from {p}entries where name = %(key)s"
COUNTER = f"{COUNTED} and end_us > {{now}}"
READ_FLAG = "select value from {p}entries where name = %(key)s and end_us > {now}"
WRITE_FLAG = (
    "insert into {p}entries (name, value, end_us) values (%(key)s, %(value)s, %(end_us)s)"
    " on duplicate key update value = values(value), end_us = values(end_us)"
)
ERASE_FLAG = "delete from {p}entries where name = %(key)s"
EXPIRED = "select name from {p}entries where end_us <= {now} limit 1000"
DELETE_EXPIRED = "delete from {p}entries where name in (%(keys)s) and end_us <= {now}"

# Around.

CLOCK = "select {now}"
META = "select value from {p}meta where name = %(name)s"
# A locking read: it neither begins a snapshot in a lent transaction nor reads from an old one.
STORE_ID = "select value from {p}meta where name = 'store' lock in share mode"
VERSION = "select version()"
_WRITTEN = {
    name: text
    for name, text in globals().items()
    if name.isupper() and not name.startswith("_") and isinstance(text, str)
}


@attrs.frozen
class Statements:
    """The statements under one prefix: `statements[CLAIM] % {...}`."""

    prefix: str
    _texts: dict[str, str] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Put the prefix and the clock into every statement, once."""
        texts = {text: text.replace("{p}", self.prefix).replace("{now}", NOW) for text in _WRITTEN.values()}
        object.__setattr__(self, "_texts", texts)

    def __getitem__(self, written: str) -> str:
        """One of this module's constants, ready for its values."""
        return self._texts[written]
