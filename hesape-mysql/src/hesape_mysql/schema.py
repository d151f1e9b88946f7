"""The tables, in numbered steps that are applied once, even when two processes start together.

MySQL commits at each change of a table, so a step can be cut in its middle: every statement of a step can run again.
"""

from __future__ import annotations

from typing import Final

from hesape.errors import SchemaError, StoreBusyError
from hesape.records import Migration
from hesape_mysql.errors import CLIENT_ERRORS, NO_TABLE, code_of
from hesape_mysql.pool import OwnSession
from hesape_mysql.records import blob, lock_name
from hesape_mysql.settings import Settings
from hesape_mysql.statements import META, Statements

# Forced whatever the server's default: transactions, four-byte characters, and names that differ in case (P5).
_TABLE: Final = "engine = InnoDB row_format = dynamic default charset = utf8mb4 collate = utf8mb4_bin"
_WAIT_S: Final = 8

_JOBS: Final = f"""create table if not exists {{p}}jobs (
    id         binary(16)       not null,
    queue      varchar(128)     not null,
    state      tinyint unsigned not null comment '0 ready, 1 scheduled, 2 reserved, 3 failed',
    place      smallint         not null comment 'the priority while ready, else 0',
    at_us      bigint           not null comment 'when it is due, its lease ends, or it failed',
    seq        bigint           not null comment 'the order in which equals were stored',
    priority   smallint         not null,
    due_us     bigint           not null comment 'microseconds since 1970, UTC, as every _us',
    attempts   int              not null default 0,
    lapses     int              not null default 0,
    exceptions int              not null default 0,
    token      binary(16)       not null default x'00000000000000000000000000000000' comment 'of the last delivery',
    holder     bigint unsigned  not null default 0 comment 'reserved: its worker; failed: its tenant',
    mark       bigint unsigned  not null default 0 comment 'reserved: of its token; failed: when',
    claimed_us bigint           not null default 0,
    pushed_us  bigint           not null,
    retried_us bigint           not null default 0,
    tenant     varchar(64)      not null,
    name       varchar(255)     not null,
    last_error text             null,
    envelope   mediumblob       not null,
    primary key (id),
    key line (queue, state, place, at_us, seq) comment 'filter and order of the claim; states are ranges apart',
    key held (holder, mark) comment 'what a worker holds, what a claim took, what a tenant has parked'
) {_TABLE}"""

_ENTRIES: Final = f"""create table if not exists {{p}}entries (
    name   varbinary(128)  not null comment 'locks, counters, flags and unique keys',
    value  varbinary(1024) not null,
    end_us bigint          not null,
    primary key (name),
    key ends (end_us) comment 'finds what expired'
) {_TABLE}"""

_WORKERS: Final = f"""create table if not exists {{p}}workers (
    worker    varbinary(512)  not null,
    holder    bigint unsigned not null comment 'as in jobs.holder',
    lock_name varchar(64)     not null comment 'the named lock that its session holds while it lives',
    session   bigint unsigned not null,
    server    varchar(300)    not null,
    beat_us   bigint          not null,
    end_us    bigint          not null,
    primary key (worker)
) {_TABLE}"""

_PAUSED: Final = f"create table if not exists {{p}}paused (queue varchar(128) not null, primary key (queue)) {_TABLE}"
_META: Final = f"""create table if not exists {{p}}meta (
    name  varbinary(32) not null,
    value varbinary(64) not null,
    primary key (name)
) {_TABLE}"""
# By this a lent connection shows that it belongs to the same store; made once, by whoever comes first.
_STORE_ID: Final = "insert ignore into {p}meta (name, value) values ('store', md5(concat(uuid(), rand(), now(6))))"
_NUMBER: Final = "insert into {p}meta (name, value) values ('schema', {n}) on duplicate key update value = {n}"

_STEPS: Final = (
    ("jobs, and what the store knows about itself", (_META, _JOBS)),
    ("locks, counters, flags and unique keys; workers; paused queues", (_ENTRIES, _WORKERS, _PAUSED)),
)
LATEST: Final = len(_STEPS)


def migrations(prefix: str) -> list[Migration]:
    """Every step, as it is applied and as a person may run it."""
    return [
        Migration(number, title, "".join(f"{statement};\n" for statement in _statements(number, prefix)))
        for number, (title, _) in enumerate(_STEPS, 1)
    ]


def _statements(number: int, prefix: str) -> list[str]:
    tables = _STEPS[number - 1][1]
    return [statement.replace("{p}", prefix) for statement in (*tables, _STORE_ID, _NUMBER.format(p="{p}", n=number))]


def version(session: OwnSession, statements: Statements) -> int:
    """The number of the last step applied, 0 for none."""
    try:
        rows = session.ask(statements[META] % {"name": blob("schema")})[0].rows
    except CLIENT_ERRORS as error:
        if code_of(error) == NO_TABLE:
            return 0
        raise
    return int(rows[0][0]) if rows else 0


def store_id(session: OwnSession, statements: Statements) -> bytes:
    """The random id by which a lent connection is recognised (X1)."""
    rows = session.ask(statements[META] % {"name": blob("store")})[0].rows
    if not rows:
        message = f"the table {statements.prefix}meta has no store id; run `hesape migrate`"
        raise SchemaError(message)
    return bytes(rows[0][0])


def migrate(session: OwnSession, settings: Settings, statements: Statements) -> list[int]:
    """Apply the missing steps, under a named lock: whoever comes second finds them done."""
    name = lock_name(settings.database, settings.prefix, "migrate")
    if session.ask(f"select get_lock('{name}', {_WAIT_S})")[0].rows[0][0] != 1:
        message = f"another process has been changing the tables of {settings.where} for {_WAIT_S} s"
        raise StoreBusyError(message)
    try:
        return _apply(session, statements)
    finally:
        if session.in_step:
            session.ask(f"do release_lock('{name}')")


def _apply(session: OwnSession, statements: Statements) -> list[int]:
    missing = list(range(version(session, statements) + 1, LATEST + 1))
    for number in missing:
        for statement in _statements(number, statements.prefix):
            session.ask(statement, commits=True)
    return missing
