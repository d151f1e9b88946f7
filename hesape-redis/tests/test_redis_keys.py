from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from redis.crc import key_slot

import hesape
from hesape.jobs import Job
from hesape.records import Claim, Unique, new_token
from hesape_redis import keys
from hesape_redis.driver import RedisDriver

ODD = ("Reports", "reports", "a:b", "a/b", "a.b-c_d", "wake:x", "x" * 128)


def everything(desk: Any) -> None:
    """Leave a key of every kind."""
    for queue in ODD:
        desk.push(queue=queue)
        desk.push(queue=queue)
        desk.push(queue=queue, delay=60)
        desk.take(queue).fail("Boom")
    driver = desk.driver
    driver.beat("worker", 60_000_000, 60_000_000)
    desk.claim(3, worker="worker", queues=ODD)
    desk.claim(1, queues=("Reports",))
    driver.pause("other")
    driver.lock("lock:a", "me", 60_000_000)
    driver.increment("counter:a", 1, 60_000_000)
    driver.write_flag("flag:a", "on", None)


def stored(client: Any, prefix: str) -> list[str]:
    return sorted(key.decode() for key in client.scan_iter(match=f"{prefix}*", count=1000))


def test_all_keys_of_a_connection_share_one_slot(desk: Any, client: Any, prefix: str) -> None:
    everything(desk)
    found = stored(client, prefix)
    kinds = {key.removeprefix(keys.base(prefix)).partition(":")[0] for key in found}
    assert kinds >= {
        "jobs", "state", "errors", "ready", "scheduled", "reserved", "claims", "open", "held", "failed", "workers",
        "queues", "paused", "sequence", "entry",
    }  # fmt: skip
    assert {key_slot(key.encode()) for key in found} == {key_slot(keys.base(prefix).encode())}


def test_every_key_that_a_script_touches_is_among_them(desk: Any, client: Any, prefix: str) -> None:
    with client.monitor() as monitor:
        everything(desk)
        client.echo("over")
        seen = []
        for command in monitor.listen():
            if command["command"].startswith("ECHO over"):
                break
            if command["client_type"] == "lua":
                seen.append(command["command"].split(" ")[1:2])
    touched = {words[0] for words in seen if words}
    assert len(touched) > 20
    assert all(key.startswith(keys.base(prefix)) for key in touched)


def test_two_prefixes_are_two_stores(opened: Callable[..., RedisDriver], at: Any) -> None:
    one, two = at(opened(prefix="one:")), at(opened(prefix="one"))
    first = one.push({"n": 1})
    two.push({"n": 2}, id=first.id)
    assert one.numbers() == [1]
    assert two.numbers() == [2]
    assert keys.base("one:") != keys.base("one")


def test_two_databases_are_two_stores(server: Any, opened: Callable[..., RedisDriver], at: Any) -> None:
    one, two = at(opened(f"{server.url[:-1]}1")), at(opened(f"{server.url[:-1]}2"))
    one.push({"n": 1})
    assert two.numbers() == []
    assert one.numbers() == [1]


def test_queues_are_told_apart_to_the_letter(desk: Any) -> None:
    for queue in ODD:
        desk.push({"queue": queue}, queue=queue)
    assert desk.driver.queues() == sorted(ODD)
    for queue in ODD:
        job = desk.take(queue)
        assert job.decode() == {"queue": queue}
        assert desk.queue.counts(queue).size == 1
        job.delete()
    assert desk.driver.queues() == []


def test_names_that_could_collide_when_joined_dont(desk: Any) -> None:
    """Tenant `a` in queue `b:c` isn't tenant `a:b`, which can't exist, in queue `c`."""
    grants = {tenant: hesape.system_grant("x", tenant) for tenant in ("a", "a-b", "a_b")}
    for tenant, grant in grants.items():
        for queue in ("b:c", "c"):
            desk.queue.push(grant, hesape.Job.new(grant, "x", {"tenant": tenant}, queue=queue))
            desk.take(queue).fail("Boom")
    for tenant in grants:
        read = hesape.system_grant("hesape.failed.read", tenant)
        for queue in ("b:c", "c"):
            [found] = desk.queue.failed(read, queue=queue)
            assert (found.tenant, found.queue) == (tenant, queue)


def with_an_error(desk: Any, job: Job) -> None:
    job.last_error, job.exceptions = "Boom", 1
    job.release()


def parked_and(repair: str) -> Callable[[Any, Job], None]:
    def end(desk: Any, job: Job) -> None:
        job.fail("Boom")
        getattr(desk.queue.operator(), repair)(job.id)

    return end


ENDS: list[Callable[[Any, Job], None]] = [
    *[lambda desk, job: job.delete()] * 4,
    lambda desk, job: job.release(0.001),
    with_an_error,
    parked_and("retry"),
    parked_and("forget"),
]


def test_after_five_thousand_mixed_jobs_nothing_is_left(desk: Any, client: Any, prefix: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - it repeats a failure
    chance = random.Random(seed)
    driver = desk.driver
    desk.push()
    desk.take().delete()
    before = stored(client, prefix)
    assert [key.removeprefix(keys.base(prefix)) for key in before] == ["sequence"]
    done = 0
    while done < 5_000:
        desk.bulk(50, queue=f"q{chance.randrange(3)}")
        for n in range(5):
            desk.push({"n": f"{done} {n}"}, queue="late", delay=0.001, attributes=hesape.Attributes(unique_for=0.05))
            desk.driver.lock(f"lock:{done}:{n}", "me", 20_000)
        driver.beat("worker", 200_000, 60_000_000)
        for job in desk.queue.pop(["q0", "q1", "q2", "late"], n=60, lease=0.5):
            ENDS[chance.randrange(len(ENDS))](desk, job)
            done += 1
        desk.claim(2, worker="worker", queues=("q0",))
        driver.retire("worker")
    while driver.queues():
        for job in desk.queue.pop(driver.queues(), n=1000):
            job.delete()
    deadline = driver.now() + 1_000_000
    while stored(client, prefix) != before and driver.now() < deadline:
        driver.rescue()
    assert stored(client, prefix) == before


def test_pushing_without_any_worker_leaves_no_token_to_wake_one(desk: Any, client: Any, prefix: str) -> None:
    for _ in range(50):
        desk.push({"n": 0})
    kinds = {key.removeprefix(keys.base(prefix)) for key in stored(client, prefix)}
    assert kinds == {"jobs", "queues", "ready:default", "sequence"}
    assert desk.numbers() == [0] * 50
    assert stored(client, prefix) == [f"{keys.base(prefix)}sequence"]


def test_a_line_is_a_skiplist_from_its_first_job_on(desk: Any, client: Any, prefix: str) -> None:
    """A sorted set of up to 128 short members is a listpack, which is searched from end to end."""
    desk.push()
    desk.push(delay=60)
    desk.push(queue="other")
    desk.take("other")
    for line in ("ready:default", "scheduled:default", "reserved:other"):
        assert client.object("encoding", f"{keys.base(prefix)}{line}") == b"skiplist"


def test_what_expires_goes_without_anybody_asking(desk: Any, client: Any, prefix: str, poll: Any) -> None:
    driver = desk.driver
    driver.lock("lock:a", "me", 30_000)
    driver.increment("counter:a", 1, 30_000)
    driver.write_flag("flag:a", "on", 30_000)
    job = desk.job(attributes=hesape.Attributes(unique_for=0.03))
    desk.queue.push(desk.grant, job)
    entry = f"{keys.base(prefix)}entry:"
    poll(lambda: stored(client, entry) == [], "entries expire")


def test_a_unique_key_is_kept_in_the_step_that_stores(driver: RedisDriver, desk: Any) -> None:
    prepared = hesape.prepare(desk.grant, desk.job())
    row = hesape.jobs.prepared_row(prepared)._replace(unique=Unique("unique:a", 60_000_000))
    driver._store([row], None)
    assert driver.read_flag("unique:a") == row.id
    with pytest.raises(hesape.AlreadyQueuedError):
        driver._store([row._replace(id=row.id.replace("0", "1", 1))], None)
    claimed = driver.reserve(Claim(("default",), 1, 10_000_000, new_token()))
    assert [found.id for found in claimed.rows] == [row.id]
