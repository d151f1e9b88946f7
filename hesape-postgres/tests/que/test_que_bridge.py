from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import hesape
from hesape.config import ConnectionSettings
from hesape.driver import CONTRACT
from hesape.errors import (
    ConfigError,
    HesapeError,
    JobNotFoundError,
    LeaseLostError,
    OutcomeUnknownError,
    SchemaError,
    StoreUnavailableError,
    UnsupportedError,
)
from hesape.jobs import Job
from hesape.plugins import Plugins
from hesape.queue import Queue
from hesape.records import Claim, Counts, new_token
from hesape_postgres.que import QueClient, QueJob
from hesape_postgres.que.bridge import QueDriver
from hesape_postgres.que.bridge_records import bridged_payload

READ = hesape.system_grant("hesape.failed.read", "acme")
RETRY = hesape.system_grant("hesape.failed.retry", "acme")
FORGET = hesape.system_grant("hesape.failed.forget", "acme")


def settings(url: str, **options: Any) -> ConnectionSettings:
    given = {"tenant": "acme", "action": "legacy.work", **options}
    chosen = {name: value for name, value in given.items() if value is not None}
    return ConnectionSettings(name="legacy", driver="que", url=url, options=chosen)


@pytest.fixture
def legacy(url: str) -> Iterator[Any]:
    with Queue(QueDriver(settings(url)), name="legacy") as queue:
        yield queue


def left(plain: Any) -> list[Any]:
    """Priority, class, args, count and error of every row."""
    return [(row[1], row[4], row[5], row[6], row[7]) for row in plain.rows()]


def test_it_is_found_by_its_name_and_says_what_it_is() -> None:
    spec = Plugins().driver("que")
    assert (spec.name, spec.contract, spec.capabilities) == ("que", CONTRACT, frozenset())
    assert "bridge" in spec.summary


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tenant": None}, "tenant isn't set"),
        ({"action": None}, "action isn't set"),
        ({"tenant": "A B"}, "tenant"),
        ({"action": "a b"}, "action"),
        ({"queue": "a b"}, "queue"),
        ({"prefix": "x"}, "prefix"),
    ],
)
def test_it_refuses_to_start_without_tenant_and_action_and_with_what_it_does_not_know(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        QueDriver(settings("postgresql://127.0.0.1:1/x", **options))


def test_a_row_comes_as_a_job_under_the_configured_tenant_and_action(legacy: Any, plain: Any, held: Any) -> None:
    row = plain.enqueue("SendInvoice", '[{"invoice_id": 42}]', priority=7, run_at="2020-01-02 03:04:05.000006+00")
    [job] = legacy.pop(n=5)
    assert (job.name, job.tenant, job.action, job.authorized_by) == ("SendInvoice", "acme", "legacy.work", "que")
    assert (job.queue, job.priority, job.payload) == ("default", 7, b'{"invoice_id": 42}')
    assert (job.attempts, job.exceptions, job.last_error) == (1, 0, None)
    assert str(job.run_at) == "2020-01-02 03:04:05.000006+00:00"
    assert job.connection_name == "legacy"
    grant = hesape.grant_for(job)
    assert (grant.tenant, grant.action) == ("acme", "legacy.work")
    assert plain.lock() is None
    job.delete()
    assert plain.rows() == []
    assert held() == 0
    assert row[3]


def test_the_id_is_made_from_the_database_and_the_rows_id_and_stays(legacy: Any, plain: Any) -> None:
    plain.enqueue("One")
    plain.enqueue("Two")
    first, second = legacy.pop(n=2)
    assert uuid.UUID(first.id).version == 5
    assert first.id != second.id
    legacy.driver.hand_back([first, second])
    assert [job.id for job in legacy.pop(n=2)] == [first.id, second.id]


@pytest.mark.parametrize(
    ("args", "payload"),
    [
        (b"[]", b"[]"),
        (b'[{"a": 1.0, "b": [9007199254740993]}]', b'{"a": 1.0, "b": [9007199254740993]}'),
        (b' [ {"a": "\xf0\x9f\x92\xa9]"} ] ', b'{"a": "\xf0\x9f\x92\xa9]"}'),
        (b'[{"a": 1}, 2]', b'[{"a": 1}, 2]'),
        (b'[{"a": 1}, {"b": 2}]', b'[{"a": 1}, {"b": 2}]'),
        (b"[1, [2]]", b"[1, [2]]"),
        (b'[["only"]]', b'[["only"]]'),
        (b'{"a": 1}', b'{"a": 1}'),
        (b'"text"', b'["text"]'),
        (b"null", b"[null]"),
    ],
)
def test_a_single_object_gives_keys_and_anything_else_positions(args: bytes, payload: bytes) -> None:
    assert bridged_payload(args) == payload
    json.loads(payload)


@pytest.mark.parametrize("queue", ["", "mails"])
def test_the_configured_queue_is_worked_and_the_empty_one_shows_as_default(url: str, plain: Any, queue: str) -> None:
    plain.enqueue("Here", queue=queue)
    plain.enqueue("Elsewhere", queue="other")
    shown = queue or "default"
    with Queue(QueDriver(settings(url, queue=queue)), name="legacy") as legacy:
        assert legacy.queues() == [shown]
        assert legacy.counts(shown) == legacy.counts("default") == Counts(1, 0, 0, 0)
        assert legacy.counts("other") == Counts(0, 0, 0, 0)
        assert legacy.pop("other") == []
        [job] = legacy.pop()
        assert (job.name, job.queue) == ("Here", shown)


@pytest.mark.parametrize("text", ["ValueError: it broke", None])
def test_a_release_counts_an_error_and_waits_as_long_as_que_says(
    legacy: Any, plain: Any, conn: Any, held: Any, text: str | None
) -> None:
    plain.enqueue("Any")
    conn.execute("update que_jobs set error_count = 2, last_error = 'before'")
    [job] = legacy.pop()
    assert (job.attempts, job.exceptions, job.last_error) == (3, 2, "before")
    job.exceptions += 1
    job.last_error = text
    job.release(1)
    query = "select error_count, last_error, extract(epoch from run_at - now())::float from que_jobs"
    [(count, stored, left_s)] = conn.execute(query).fetchall()
    assert (count, stored) == (3, text or "before")
    assert 81 < left_s <= 84
    assert held() == 0
    assert legacy.pop() == []


def test_a_release_that_is_not_spent_keeps_the_count(legacy: Any, plain: Any, conn: Any) -> None:
    plain.enqueue("Any")
    [job] = legacy.pop()
    job.release(0, spent=False)
    [(count, left_s)] = conn.execute(
        "select error_count, extract(epoch from run_at - now())::float from que_jobs"
    ).fetchall()
    assert count == 0
    assert 0 < left_s <= 3


def test_what_parks_moves_to_a_table_of_its_own(legacy: Any, plain: Any, conn: Any, held: Any) -> None:
    row = plain.enqueue("Any", '[1.0,  "x"]', priority=3)
    [job] = legacy.pop()
    job.exceptions = 1
    job.fail(ValueError("no use"))
    assert plain.rows() == []
    assert held() == 0
    assert legacy.counts() == Counts(0, 0, 0, 1)
    [failed] = legacy.failed(READ)
    assert (failed.id, failed.name, failed.queue, failed.tenant, failed.action) == (
        job.id,
        "Any",
        "default",
        "acme",
        "legacy.work",
    )
    assert (failed.payload, failed.priority, failed.exceptions, failed.problem) == (b'[1.0,  "x"]', 3, 1, "")
    assert failed.last_error.startswith("ValueError: no use")
    assert legacy.find(READ, job.id).id == job.id
    assert legacy.failed(hesape.system_grant("hesape.failed.read", "other")) == []
    legacy.retry(RETRY, job.id)
    assert plain.rows()[0][3] == row[3]
    assert left(plain) == [(3, "Any", '[1.0,  "x"]', 0, None)]
    assert legacy.failed(READ) == []
    [again] = legacy.pop()
    assert again.id == job.id
    again.fail("still none")
    assert legacy.forget(FORGET, job.id) == 1
    assert conn.execute("select from hesape_que_parked").rowcount == 0


def test_a_plug_pulled_while_parking_leaves_the_job_in_one_table(
    legacy: Any, plain: Any, conn: Any, until: Any, held: Any
) -> None:
    plain.enqueue("Any")
    [job] = legacy.pop()
    conn.execute("""
        create function pull() returns trigger language plpgsql as
        $$ begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(5); return new; end $$;
        create trigger pulls before insert on hesape_que_parked for each row execute function pull()""")
    with pytest.raises((LeaseLostError, OutcomeUnknownError)):
        job.fail("no use")
    assert len(plain.rows()) == 1
    assert conn.execute("select from hesape_que_parked").rowcount == 0
    until(lambda: held() == 0)


def test_failed_jobs_come_newest_first_in_pages_and_are_repaired_all_or_none(legacy: Any, plain: Any) -> None:
    for name in ("a", "b", "c"):
        plain.enqueue(name)
    jobs = legacy.pop(n=3)
    for job in jobs:
        job.fail("no use")
    first = legacy.failed(READ, limit=2)
    assert [job.name for job in first] == ["c", "b"]
    assert [job.name for job in legacy.failed(READ, limit=2, before=first[-1])] == ["a"]
    with pytest.raises(JobNotFoundError):
        legacy.operator().forget([jobs[0].id, str(uuid.uuid4())])
    assert legacy.counts().failed == 3
    assert legacy.operator().prune(3600) == 0
    assert legacy.operator().flush() == 3


def test_a_lost_session_is_a_lost_lease(legacy: Any, plain: Any, conn: Any, until: Any) -> None:
    for name in ("a", "b", "c"):
        plain.enqueue(name)
    first, second, third = legacy.pop(n=3)
    conn.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'hesape que bridge'"
    )
    until(lambda: plain.lock() is not None)  # the server let another program have the first at once
    for settle in (first.delete, second.release, lambda: third.fail("no use")):
        with pytest.raises(LeaseLostError):
            settle()
    assert [row[4] for row in plain.rows()] == ["a", "b", "c"]
    assert [job.name for job in legacy.pop(n=3)] == ["b", "c"]


def test_deletions_of_a_batch_say_which_were_lost(legacy: Any, plain: Any, conn: Any, held: Any) -> None:
    for name in ("a", "b", "c"):
        plain.enqueue(name)
    jobs = legacy.pop(n=3)
    conn.execute("delete from que_jobs where job_class = 'b'")
    assert [job.name for job in legacy.driver.delete_jobs(jobs)] == ["b"]
    assert legacy.driver.delete_jobs(jobs) == jobs
    assert plain.rows() == []
    assert held() == 0


def test_a_claim_that_is_repeated_returns_the_same_jobs_and_deletes_what_is_done(
    legacy: Any, plain: Any, held: Any
) -> None:
    for name in ("a", "b", "c"):
        plain.enqueue(name)
    claim = Claim(("default",), 2, 60_000_000, new_token())
    first = legacy.driver.reserve(claim)
    assert [row.name for row in first.rows] == ["a", "b"]
    assert legacy.driver.reserve(claim._replace(repeat=True)).rows == first.rows
    assert held() == 2
    job = legacy.receive(first, claim, 0.0)[0]
    done = (hesape.records.Key(job.id, claim.token), hesape.records.Key(job.id, b"another"))
    second = legacy.driver.reserve(claim._replace(token=new_token(), done=done))
    assert [row.name for row in second.rows] == ["c"]
    assert second.lost == [done[1]]
    assert held() == 2


def test_what_is_handed_back_is_as_it_was(legacy: Any, plain: Any, held: Any) -> None:
    before = plain.enqueue("Any")
    jobs = legacy.pop()
    legacy.driver.hand_back(jobs)
    assert plain.rows() == [before]
    assert held() == 0
    with pytest.raises(LeaseLostError):
        jobs[0].delete()


def test_a_lock_lasts_whatever_the_lease_and_extending_moves_the_deadline(legacy: Any, plain: Any, until: Any) -> None:
    plain.enqueue("Any")
    [job] = legacy.pop(lease=0.01)
    deadline = job.record().reserved_until
    until(lambda: plain.conn.execute("select now() > %s", (deadline,)).fetchall()[0][0])
    assert legacy.pop() == []
    assert job.extend(60) > deadline
    job.delete()
    assert plain.rows() == []


def test_counts_know_the_jobs_of_every_program(legacy: Any, plain: Any, client: QueClient, conn: Any) -> None:
    plain.enqueue("Ruby")
    client.enqueue(QueJob("Python"))
    plain.enqueue("Later", run_at="3001-01-01")
    oldest = conn.execute("select min(run_at) from que_jobs").fetchall()[0][0]
    assert legacy.oldest_pending() == oldest
    assert plain.lock() is not None
    assert legacy.counts() == Counts(1, 1, 1, 0)
    legacy.pop(n=5)
    assert legacy.counts() == Counts(0, 1, 2, 0)
    assert legacy.oldest_pending() is None
    claimed = legacy.driver.reserve(Claim(("default",), 1, 1_000_000, new_token()))
    assert (
        claimed.next_due_us
        == conn.execute("select (extract(epoch from timestamptz '3001-01-01') * 1000000)::bigint").fetchall()[0][0]
    )
    assert legacy.operator().clear("default") == 3


def test_what_que_can_not_hold_is_refused(legacy: Any, conn: Any) -> None:
    grant = hesape.system_grant("legacy.work", "acme")
    refused: list[Any] = [
        lambda: legacy.push(grant, Job.new(grant, "Any")),
        lambda: legacy.operator().pause("default"),
        lambda: legacy.operator().resume("default"),
        lambda: legacy.lock("key", 60).take(),
        lambda: legacy.counter("key", 60).add(),
        lambda: legacy.flag("key").set("value"),
    ]
    for call in refused:
        with pytest.raises(UnsupportedError, match="bridge"):
            call()
    assert conn.execute("select from que_jobs").rowcount == 0


def test_another_schema_is_refused_before_anything_is_taken(url: str, conn: Any) -> None:
    conn.execute("comment on table que_jobs is '4'")
    with Queue(QueDriver(settings(url)), name="legacy") as legacy, pytest.raises(SchemaError, match="Que schema 4"):
        legacy.pop()
    assert conn.execute("select to_regclass('hesape_que_parked')").fetchall() == [(None,)]


def test_a_migration_makes_both_tables(url: str, conn: Any) -> None:
    conn.execute("drop table que_jobs")
    driver = QueDriver(settings(url))
    assert [step.number for step in driver.migrations()] == [1, 2]
    assert driver.schema_version() == 0
    assert driver.migrate() == [1, 2]
    assert driver.migrate() == []
    assert driver.schema_version() == 2
    assert driver.ping().startswith("PostgreSQL")
    driver.close()
    conn.execute("insert into que_jobs (job_class) values ('Any')")


def test_an_unreachable_server_is_named_without_its_password() -> None:
    driver = QueDriver(settings("postgresql://user:hunter2@127.0.0.1:1/x", connect_timeout=2))
    with pytest.raises(StoreUnavailableError) as caught:
        driver.ping()
    assert "hunter2" not in str(caught.value)


def test_a_claim_that_fails_half_way_leaves_only_the_locks_that_are_held(
    url: str, conn: Any, plain: Any, held: Any
) -> None:
    plain.enqueue("a")
    address = psycopg.conninfo.make_conninfo(url, options="-csearch_path=raced,pg_catalog,public")
    conn.execute("""
        create schema raced;
        create function raced.pg_try_advisory_lock(key bigint) returns boolean language plpgsql as $$
        begin
          if key = 3 then raise 'no'; end if;
          return pg_catalog.pg_try_advisory_lock(key);
        end $$""")
    with Queue(QueDriver(settings(address)), name="legacy") as legacy:
        [first] = legacy.pop()
        plain.enqueue("b")
        plain.enqueue("c")
        with pytest.raises(HesapeError):
            legacy.pop(n=2)
        assert held() == 1
        first.delete()
        assert held() == 0


FORKED = """
import os, sys
from hesape.config import ConnectionSettings
from hesape.queue import Queue
from hesape_postgres.que.bridge import QueDriver

options = {"tenant": "acme", "action": "legacy.work"}
legacy = Queue(QueDriver(ConnectionSettings(name="legacy", driver="que", url=sys.argv[1], options=options)))
[mine] = legacy.pop()
child = os.fork()
if child == 0:
    [theirs] = legacy.pop()
    theirs.delete()
    os._exit(0 if theirs.name == "b" else 1)
assert os.waitpid(child, 0)[1] == 0
mine.delete()
legacy.close()
"""


def test_a_forked_child_has_a_session_of_its_own(url: str, plain: Any, held: Any) -> None:
    plain.enqueue("a")
    plain.enqueue("b")
    subprocess.run([sys.executable, "-c", FORKED, url], check=True, timeout=60)
    assert plain.rows() == []
    assert held() == 0
