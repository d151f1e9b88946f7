"""The door over a store: what may be pushed, what is popped, and who sees what."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape import Attributes, Job, Queue, system_grant
from hesape.config import ConnectionSettings
from hesape.driver import Driver, DriverSpec
from hesape.drivers.memory.driver import MemoryDriver
from hesape.drivers.memory.plugin import SPEC
from hesape.envelope import Keys
from hesape.events import Event
from hesape.records import Claim, Key

GRANT = system_grant("invoice.send", "acme")
OTHER = system_grant("invoice.send", "umbrella")
READ = system_grant("hesape.failed.read", "acme")
RETRY = system_grant("hesape.failed.retry", "acme")
FORGET = system_grant("hesape.failed.forget", "acme")
OLD = Keys(secrets={"old": b"o" * 16}, sealing="old")
BOTH = Keys(secrets={"old": b"o" * 16, "new": b"n" * 16}, sealing="new")


@pytest.fixture
def driver() -> MemoryDriver:
    return MemoryDriver.from_settings(ConnectionSettings(name="main", driver="memory", folder=Path("/")))


@pytest.fixture
def queue(driver: MemoryDriver) -> Iterator[Queue]:
    with Queue(driver, name="main") as opened:
        yield opened


def job(name: str = "invoice.send", payload: object = None, **fields: object) -> Job:
    return Job.new(GRANT, name, payload, **fields)  # type: ignore[arg-type]


def parked(queue: Queue, **fields: object) -> Job:
    queue.push(GRANT, job(**fields))  # type: ignore[arg-type]
    popped = queue.pop()[0]
    popped.fail(ValueError("no such invoice"))
    return popped


def test_a_pushed_job_is_popped_and_settles_itself(queue: Queue) -> None:
    stored = queue.push(GRANT, job(payload={"a": 1}))
    [popped] = queue.pop()
    assert (popped.id, popped.payload, popped.attempts, popped.connection_name) == (stored.id, b'{"a":1}', 1, "main")
    popped.delete()
    assert queue.counts().size == 0


def test_each_door_refuses_a_forged_job_and_stores_nothing(queue: Queue) -> None:
    doors: list[Callable[[], object]] = [
        lambda: queue.push(OTHER, job()),
        lambda: queue.push_on(OTHER, "high", job()),
        lambda: queue.later(OTHER, 5, job()),
        lambda: queue.bulk(OTHER, [Job.new(OTHER, "a"), job()]),
        lambda: queue.driver.store([job()]),  # type: ignore[list-item]
    ]
    for door in doors:
        with pytest.raises(hesape.ForgedError):
            door()
    assert queue.queues() == []


def test_raw_bytes_are_checked_and_stored_unchanged(queue: Queue) -> None:
    with pytest.raises(hesape.PayloadInvalidError):
        queue.push_raw(GRANT, "a", b'{"a":1,"a":2}')
    with pytest.raises(hesape.PayloadTooLargeError):
        queue.push_raw(GRANT, "a", b'"' + b"x" * 32_768 + b'"')
    queue.push_raw(GRANT, "a", b' {"x" : 1.0} ', queue="raw", delay=0, attributes=Attributes(tries=2))
    [popped] = queue.pop("raw")
    assert (popped.payload, popped.attributes.tries) == (b' {"x" : 1.0} ', 2)


def test_push_on_wins_over_the_jobs_queue(queue: Queue) -> None:
    assert queue.push_on(GRANT, "high", job(queue="low")).queue == "high"
    assert [popped.queue for popped in queue.pop(["low", "high"], 5)] == ["high"]


def test_a_bad_job_in_a_bulk_is_named_by_its_index_and_nothing_is_stored(queue: Queue) -> None:
    bad = job()
    bad.priority = 40_000
    with pytest.raises(hesape.PriorityInvalidError) as caught:
        queue.bulk(GRANT, [job(), job(), bad, job()])
    assert caught.value.index == 2
    assert "index 2" in caught.value.__notes__[0]
    assert queue.counts().size == 0


def test_a_bulk_has_limits(queue: Queue) -> None:
    with pytest.raises(hesape.BulkTooLargeError, match="10001"):
        queue.bulk(GRANT, [job()] * 10_001)
    big = "x" * 32_000
    with pytest.raises(hesape.BulkTooLargeError, match="16777216 bytes"):
        queue.bulk(GRANT, [job(payload=big) for _ in range(600)])
    assert queue.bulk(GRANT, []) == []
    assert queue.counts().size == 0


def test_a_bulk_comes_back_in_its_order(queue: Queue) -> None:
    wanted = [job(payload=number) for number in range(200)]
    assert [stored.id for stored in queue.bulk(GRANT, iter(wanted))] == [one.id for one in wanted]
    assert [popped.decode() for popped in queue.pop(n=500)] == list(range(200))


@pytest.mark.parametrize(
    "arguments",
    [{"n": 0}, {"n": -1}, {"n": True}, {"n": 1.5}, {"lease": 0}, {"lease": -1}, {"queues": ()}, {"queues": "a b"}],
)
def test_a_pop_out_of_range_is_a_value_error(queue: Queue, arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        queue.pop(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1_000, 1_000_000])
def test_a_claim_is_bounded_whatever_is_asked_for(queue: Queue, n: int) -> None:
    queue.bulk(GRANT, [job() for _ in range(1_500)])
    assert len(queue.pop(n=n)) == 1_000


def test_a_tampered_record_is_parked_with_the_reason_and_only_the_operator_sees_it(
    driver: MemoryDriver, caplog: pytest.LogCaptureFixture
) -> None:
    sealing, plain = Queue(driver, keys=BOTH), Queue(driver)
    plain.push(GRANT, job())
    with caplog.at_level(logging.ERROR):
        assert sealing.pop() == []
    assert "parked" in caplog.text
    assert sealing.failed(READ) == []
    [found] = sealing.operator().failed()
    assert found.problem.startswith("tampered: ")
    assert "isn't sealed" in (found.last_error or "")
    for attempt in (lambda: sealing.find(READ, found.id), lambda: sealing.retry(RETRY, found.id)):
        with pytest.raises(hesape.JobNotFoundError):
            attempt()
    with pytest.raises(hesape.TamperedError):
        sealing.operator().retry(found.id)
    assert sealing.counts().failed == 1


def test_a_record_under_an_unknown_key_is_handed_back_for_a_minute_unspent(driver: MemoryDriver) -> None:
    new, old = Queue(driver, keys=BOTH), Queue(driver, keys=OLD)
    new.push(GRANT, job())
    now = driver.now()
    assert old.pop() == []
    assert old.counts().delayed == 1
    assert "'new'" in (old.flag("hesape.unreadable").value() or "")
    driver.clock = lambda: now + 61_000_000
    assert [popped.attempts for popped in new.pop()] == [1]


def test_the_flag_that_records_rest_lasts_as_long_as_they_do(
    driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = Queue(driver, keys=OLD)
    Queue(driver, keys=BOTH).push(GRANT, job())
    began_us, began = driver.now(), time.monotonic()
    for minutes in range(0, 200, 40):  # by itself it ends after an hour
        now_us, now = began_us + minutes * 60_000_000, began + minutes * 60
        driver.clock = partial(int, now_us)
        monkeypatch.setattr("hesape.queue.monotonic", partial(float, now))
        assert old.pop() == []
        assert old.flag("hesape.unreadable").value() is not None


@pytest.mark.parametrize("delay", [0, -5, timedelta(0)])
def test_later_by_nothing_means_now_whatever_the_job_says(queue: Queue, delay: float | timedelta) -> None:
    queue.later(GRANT, delay, job(run_at=datetime.now(UTC) + timedelta(days=1)))
    assert (queue.counts().pending, queue.counts().delayed) == (1, 0)


def test_a_job_that_is_named_twice_in_a_deletion_is_not_lost(queue: Queue) -> None:
    queue.push(GRANT, job())
    [popped] = queue.pop()
    assert queue.driver.delete_jobs([popped, popped]) == []
    assert queue.counts().size == 0


def test_a_record_that_cannot_be_set_aside_costs_the_others_nothing(
    driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealing, plain = Queue(driver, keys=BOTH), Queue(driver)
    sealing.push(GRANT, job())
    plain.push(GRANT, job())
    monkeypatch.setattr("hesape.retry.PATIENCE_S", 0.05)

    def away(*_: object, **__: object) -> bool:
        raise hesape.StoreUnavailableError

    monkeypatch.setattr(type(driver), "_fail", away)
    assert len(sealing.pop(n=2)) == 1


def test_rotated_keys_read_the_old_ones(driver: MemoryDriver) -> None:
    Queue(driver, keys=OLD).push(GRANT, job())
    assert len(Queue(driver, keys=BOTH).pop()) == 1


def test_failed_jobs_are_seen_under_their_own_actions_and_by_their_own_tenant(queue: Queue) -> None:
    mine = parked(queue, payload={"a": 1}, priority=7)
    for call in (
        lambda: queue.failed(GRANT),
        lambda: queue.find(GRANT, mine.id),
        lambda: queue.retry(READ, mine.id),
        lambda: queue.forget(RETRY, mine.id),
    ):
        with pytest.raises(hesape.ForbiddenError):
            call()
    stranger = system_grant("hesape.failed.read", "umbrella")
    assert queue.failed(stranger) == []
    with pytest.raises(hesape.JobNotFoundError):
        queue.find(stranger, mine.id)
    with pytest.raises(hesape.JobNotFoundError):
        queue.retry(system_grant("hesape.failed.retry", "umbrella"), mine.id)
    with pytest.raises(hesape.JobNotFoundError):
        queue.forget(system_grant("hesape.failed.forget", "umbrella"), mine.id)
    found = queue.find(READ, mine.id)
    assert found == queue.failed(READ)[0]
    assert (found.name, found.tenant, found.action, found.authorized_by) == (
        "invoice.send",
        "acme",
        "invoice.send",
        "system",
    )
    assert (found.payload, found.priority, found.attempts, found.problem) == (b'{"a":1}', 7, 1, "")
    assert (found.last_error or "").startswith("ValueError: no such invoice\n\n")
    with pytest.raises(hesape.DetachedError):
        hesape.grant_for(found)  # type: ignore[arg-type]


def test_pages_of_the_failed_list_go_on_where_they_ended(queue: Queue) -> None:
    ids = [parked(queue).id for _ in range(7)]
    seen: list[str] = []
    before = None
    while page := queue.failed(READ, limit=3, before=before):
        seen += [found.id for found in page]
        before = page[-1].cursor
    assert seen == ids[::-1]
    assert queue.failed(READ, queue="other") == []
    for limit in (0, 1_001, True):
        with pytest.raises(ValueError, match="limit"):
            queue.failed(READ, limit=limit)
    with pytest.raises(ValueError, match="cursor"):
        queue.failed(READ, before="yesterday")


def test_a_page_is_filled_past_what_its_tenant_may_not_see(driver: MemoryDriver) -> None:
    sealing, plain = Queue(driver, keys=BOTH), Queue(driver)
    first = parked(sealing)
    for _ in range(4):
        plain.push(GRANT, job())
    assert sealing.pop(n=4) == []
    assert [found.id for found in sealing.failed(READ, limit=1)] == [first.id]


def test_a_retried_job_is_what_was_pushed_and_due_now(queue: Queue) -> None:
    until = datetime.now(UTC) + timedelta(seconds=30)
    mine = parked(queue, priority=7, attributes=Attributes(tries=2, retry_until=until))
    queue.retry(RETRY, mine.id)
    [again] = queue.pop()
    assert (again.id, again.attempts, again.exceptions, again.last_error) == (mine.id, 1, 0, None)
    assert (again.priority, again.attributes, again.action, again.authorized_by) == (
        7,
        mine.attributes,
        "invoice.send",
        "system",
    )
    assert again.retry_until is not None
    assert again.retry_until > until
    with pytest.raises(hesape.NotFailedError):
        queue.retry(RETRY, mine.id)


def test_lists_of_ids_are_all_or_nothing(queue: Queue) -> None:
    ids = [parked(queue).id for _ in range(3)]
    unknown = job().id
    for call in (lambda: queue.retry(RETRY, [*ids, unknown]), lambda: queue.forget(FORGET, [*ids, unknown])):
        with pytest.raises(hesape.JobNotFoundError) as caught:
            call()
        assert caught.value.index == 3
    assert queue.counts().failed == 3
    assert queue.forget(FORGET, ids[:2]) == 2
    queue.retry(RETRY, [ids[2], ids[2]])
    assert (queue.counts().failed, queue.counts().pending) == (0, 1)


def test_the_operator_sees_every_tenant_and_says_who_it_is(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    parked(queue)
    queue.push(OTHER, Job.new(OTHER, "a"))
    queue.pop()[0].fail("no")
    operator = queue.operator()
    assert {found.tenant for found in operator.failed()} == {"acme", "umbrella"}
    queue.push(GRANT, job(queue="high"))
    with caplog.at_level(logging.INFO):
        assert operator.clear("high") == 1
        operator.pause("high")
        operator.resume("high")
        assert operator.prune(3600) == 0
        assert operator.flush() == 2
    assert len([line for line in caplog.messages if line.startswith("operator ")]) == 5


def test_coordination_takes_and_frees(queue: Queue) -> None:
    first, second = queue.lock("report", 60), queue.lock("report", 60)
    with first:
        assert not second.take()
        assert first.take()
        with pytest.raises(hesape.LockHeldError):
            second.__enter__()
        assert not second.free()
    assert second.take()
    counter = queue.counter("mails", 60)
    assert (counter.value(), counter.add(), counter.add(4), counter.value()) == (0, 1, 5, 5)
    flag = queue.flag("mode")
    flag.set("slow")
    assert queue.flag("mode").value() == "slow"
    flag.erase()
    assert flag.value() is None
    for wrong in (lambda: queue.lock("", 60), lambda: queue.lock("a", 0), lambda: queue.counter("a", -1)):
        with pytest.raises(ValueError, match="expected"):
            wrong()


def test_observers_are_told_without_payload(driver: MemoryDriver) -> None:
    told: list[Event] = []

    queue = Queue(driver, name="main", notify=told.append)
    queue.push(GRANT, job(payload="secret"))
    queue.pop()[0].fail("no")
    queue.retry(RETRY, told[0].id)  # type: ignore[attr-defined]
    queue.operator().pause("a")
    queue.operator().resume("a")
    assert [event.kind for event in told] == ["queueing", "queued", "retried", "paused", "resumed"]
    assert "secret" not in repr(told)


def test_the_same_is_awaitable(queue: Queue) -> None:
    async def all_of_it() -> int:
        await queue.aio.bulk(GRANT, [job() for _ in range(20)])
        popped = await queue.aio.pop(n=20)
        await asyncio.gather(*(queue.aio.delete(one) for one in popped[:-1]))
        await queue.aio.release(popped[-1], 0)
        return (await queue.aio.counts()).pending

    assert asyncio.run(all_of_it()) == 1


def test_a_driver_that_opens_a_door_of_its_own_is_refused() -> None:
    for door in ("push", "push_on", "push_raw", "later", "bulk", "store", "authorized", "prepare"):
        with pytest.raises(hesape.ForgedError, match=door):
            type("Sneaky", (MemoryDriver,), {door: lambda self: None})


def test_a_driver_without_transactions_refuses_tx_before_anything_is_written(queue: Queue) -> None:
    bare: DriverSpec = SPEC
    assert "transactions" not in bare.capabilities
    with pytest.raises(hesape.UnsupportedError, match="memory"):
        queue.push(GRANT, job(), tx=object())
    assert queue.queues() == []


class Flaky(MemoryDriver):
    """Loses the answer of the first call of each kind after it was carried out."""

    lost: set[str]

    def _lose(self, what: str) -> None:
        if what not in self.lost:
            self.lost.add(what)
            raise hesape.OutcomeUnknownError

    def _store(self, rows: object, tx: object) -> None:
        super()._store(rows, tx)  # type: ignore[arg-type]
        self._lose("store")

    def reserve(self, claim: Claim) -> object:  # type: ignore[override]
        found = super().reserve(claim)
        self._lose("reserve")
        return found

    def _delete(self, keys: list[Key], *, repeat: bool, tx: object) -> list[Key]:  # type: ignore[override]
        found = super()._delete(keys, repeat=repeat, tx=tx)
        self._lose("delete")
        return found

    def _release(self, key: Key, **how: object) -> bool:
        found = super()._release(key, **how)  # type: ignore[arg-type]
        self._lose("release")
        return found


def test_a_call_whose_answer_was_lost_is_repeated_without_doing_it_twice() -> None:
    driver: Driver = Flaky.from_settings(ConnectionSettings(name="main", driver="memory", folder=Path("/")))
    driver.lost = set()  # type: ignore[attr-defined]
    queue = Queue(driver)
    queue.push(GRANT, job())
    [popped] = queue.pop()
    assert popped.attempts == 1
    popped.release()
    [popped] = queue.pop()
    assert popped.attempts == 2
    popped.delete()
    assert queue.counts().size == 0
    assert driver.lost == {"store", "reserve", "release", "delete"}  # type: ignore[attr-defined]


def test_a_store_that_stays_away_is_said_so(driver: MemoryDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hesape.retry.PATIENCE_S", 0.05)

    def away(*_: object, **__: object) -> None:
        raise hesape.StoreUnavailableError

    monkeypatch.setattr(type(driver), "_store", away)
    with pytest.raises(hesape.StoreUnavailableError):
        Queue(driver).push(GRANT, job())


@pytest.mark.parametrize("wrong", [5, None, b"0", "x", ["x"], [5], object()])
def test_what_is_no_id_is_refused_as_such(queue: Queue, wrong: Any) -> None:
    for call in (
        lambda: queue.find(READ, wrong),
        lambda: queue.retry(RETRY, wrong),
        lambda: queue.forget(FORGET, wrong),
        lambda: queue.operator().find(wrong),
        lambda: queue.operator().retry(wrong),
        lambda: queue.operator().forget(wrong),
    ):
        with pytest.raises(hesape.IdInvalidError, match="expected the canonical lower-case text of a UUID"):
            call()
