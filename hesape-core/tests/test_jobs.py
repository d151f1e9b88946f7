"""The job: how it is built, prepared, delivered and settled."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest

import hesape
from hesape import Attributes, Job, prepare, system_grant
from hesape.envelope import Keys, decode, encode
from hesape.jobs import PreparedJob, attached, checked, prepared_row, received, stored_key
from hesape.records import Row, new_token
from hesape.testing import FakeJob

GRANT = system_grant("invoice.send", "acme")
KEYS = Keys(secrets={"k": b"k" * 16}, sealing="k")


def delivered(job: Job | None = None, *, retried_us: int | None = None, keys: Keys = Keys()) -> Row:  # noqa: B008 - a value
    row = prepared_row(prepare(GRANT, job or Job.new(GRANT, "invoice.send"), keys=keys))
    return Row(
        row.id, row.envelope, row.tenant, row.name, row.queue, row.priority,
        due_us=1_000_000, attempts=1, lapses=0, exceptions=0, last_error=None, reserved_until_us=2_000_000,
        pushed_us=500_000, retried_us=retried_us, failed_us=None,
    )  # fmt: skip


# Building


def test_a_new_job_takes_tenant_action_and_author_from_its_grant() -> None:
    job = Job.new(GRANT, "invoice.send", {"invoice_id": 42})
    assert (job.tenant, job.action, job.authorized_by) == ("acme", "invoice.send", "system")
    assert (job.payload, job.queue, job.priority, job.run_at, job.attempts) == (b'{"invoice_id":42}', "", None, None, 0)
    assert job.id[14] == "7"


def test_the_name_is_asked_for_before_the_tenant() -> None:
    unissued = object.__new__(hesape.Grant)
    with pytest.raises(hesape.NoNameError):
        Job.new(unissued, "")
    with pytest.raises(hesape.NoTenantError):
        Job.new(unissued, "invoice.send")


def test_an_explicit_queue_wins_over_the_attribute_and_that_over_the_default() -> None:
    attributes = Attributes(queue="slow")
    assert Job.new(GRANT, "a", queue="high", attributes=attributes).queue == "high"
    assert Job.new(GRANT, "a", attributes=attributes).queue == "slow"
    assert prepare(GRANT, Job.new(GRANT, "a")).job.queue == "default"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"queue": "a b"}, hesape.NameInvalidError),
        ({"run_at": datetime(2026, 1, 1)}, hesape.TimeInvalidError),  # noqa: DTZ001
        ({"priority": 32768}, hesape.PriorityInvalidError),
        ({"priority": -32769}, hesape.PriorityInvalidError),
        ({"priority": 1.0}, hesape.PriorityInvalidError),
        ({"priority": True}, hesape.PriorityInvalidError),
        ({"display_name": "a\n"}, hesape.NameInvalidError),
        ({"attributes": {"tries": 3}}, hesape.AttributesInvalidError),
        ({"id": "nonsense"}, hesape.IdInvalidError),
        ({"payload": b"{}"}, hesape.PayloadInvalidError),
        ({"payload": "x" * 40_000}, hesape.PayloadTooLargeError),
    ],
)
def test_what_it_can_see_it_refuses_and_prepare_refuses_it_when_it_is_edited_in(
    wrong: dict[str, object], error: type[hesape.HesapeError]
) -> None:
    with pytest.raises(error):
        Job.new(GRANT, "invoice.send", **wrong)  # type: ignore[arg-type]
    job = Job.new(GRANT, "invoice.send")
    field, value = next(iter(wrong.items()))
    setattr(job, field, b'"' + b"x" * 40_000 + b'"' if value == "x" * 40_000 else b"{" if field == "payload" else value)
    with pytest.raises(error):
        prepare(GRANT, job)


# Authorized


def edited(**fields: object) -> Job:
    job = Job.new(GRANT, "invoice.send")
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def test_authorized_refuses_in_the_order_of_the_contract() -> None:
    """Each step repairs the first fault and meets the next one."""
    job = Job("x", "", "other", b"x" * 40_000, action="invoice.delete", authorized_by="anna")
    unissued = object.__new__(hesape.Grant)
    with pytest.raises(hesape.NoTenantError):
        hesape.authorized(unissued, job)
    with pytest.raises(hesape.NoNameError):
        hesape.authorized(GRANT, job)
    job.name = "invoice.send"
    with pytest.raises(hesape.ForgedError, match=r"tenant 'other'.*'acme'"):
        hesape.authorized(GRANT, job)
    job.tenant = "acme"
    with pytest.raises(hesape.ForgedError, match=r"action 'invoice\.delete'.*'invoice\.send'"):
        hesape.authorized(GRANT, job)
    job.action = "invoice.send"
    with pytest.raises(hesape.ForgedError, match=r"author 'anna'.*'system'"):
        hesape.authorized(GRANT, job)
    job.authorized_by = ""
    with pytest.raises(hesape.PayloadTooLargeError, match=r"40000.*32768"):
        hesape.authorized(GRANT, job)
    job.payload = b"{}"
    hesape.authorized(GRANT, job)


def test_empty_fields_are_no_fault_and_are_filled_from_the_grant() -> None:
    job = edited(tenant="", action="", authorized_by="", queue="", priority=None)
    stored = prepare(GRANT, job).job
    assert (stored.tenant, stored.action, stored.authorized_by) == ("acme", "invoice.send", "system")
    assert (stored.queue, stored.priority) == ("default", 100)


def test_nothing_of_a_delivery_survives_a_push() -> None:
    stored = prepare(GRANT, edited(attempts=9, exceptions=9, last_error="old")).job
    assert (stored.attempts, stored.exceptions, stored.last_error) == (0, 0, None)


def test_a_delay_stays_a_delay_and_leaves_run_at_out() -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    row = prepared_row(prepare(GRANT, edited(run_at=moment), delay=timedelta(seconds=5)))
    assert (row.run_at_us, row.delay_us) == (None, 5_000_000)
    row = prepared_row(prepare(GRANT, edited(run_at=moment), delay=-5))
    assert (row.run_at_us, row.delay_us) == (1_893_456_000_000_000, 0)


def test_the_push_names_the_queue_before_the_seal() -> None:
    row = prepared_row(prepare(GRANT, Job.new(GRANT, "a", queue="low"), queue="high", keys=KEYS))
    assert decode(row.envelope, KEYS).queue == row.queue == "high"


def test_unique_keys_are_apart_by_tenant_name_and_payload() -> None:
    def key(tenant: str, name: str, payload: object, **more: object) -> str:
        grant = system_grant("do", tenant)
        attributes = Attributes(unique_for=60, **more)  # type: ignore[arg-type]
        unique = prepared_row(prepare(grant, Job.new(grant, name, payload, attributes=attributes))).unique
        assert unique is not None
        assert unique.ttl_us == 60_000_000
        return unique.key

    different = [
        key("a", "n", {}),
        key("b", "n", {}),
        key("a", "m", {}),
        key("a", "n", [1]),
        key("a", "n", {}, unique_key="n"),
    ]
    assert len(set(different)) == len(different)
    assert key("a", "n", {}) == key("a", "n", {})
    assert key("a", "n", {}, unique_key="k") == key("a", "other", [1], unique_key="k")
    assert prepared_row(prepare(GRANT, Job.new(GRANT, "a"))).unique is None


def test_joined_keys_never_collide() -> None:
    assert stored_key("lock", "a", "b:c") != stored_key("lock", "a:b", "c")
    assert stored_key("lock", "1:a") != stored_key("lock", "1", "a")
    assert len(stored_key("unique", "x" * 10_000)) < 80


# Prepared


def test_a_prepared_job_is_made_by_prepare_alone_and_has_nothing_to_alter() -> None:
    genuine = prepare(GRANT, Job.new(GRANT, "a"))
    for forged in (object.__new__(PreparedJob), Job.new(GRANT, "a"), None, "x"):
        with pytest.raises(hesape.ForgedError):
            prepared_row(forged)
    with pytest.raises(hesape.ForgedError):
        PreparedJob(genuine)  # type: ignore[arg-type]
    with pytest.raises(hesape.ForgedError):
        type("Mine", (PreparedJob,), {})
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(hesape.ForgedError):
            attempt(genuine)
    with pytest.raises(AttributeError):
        object.__setattr__(genuine, "job", None)


def test_a_prepared_job_is_frozen_when_its_job_is_edited_later() -> None:
    job = Job.new(GRANT, "a")
    prepared = prepare(GRANT, job)
    job.tenant, job.payload = "other", b"[]"
    prepared.job.tenant = "other"
    assert prepared.job.tenant == prepared_row(prepared).tenant == "acme"
    assert decode(prepared_row(prepared).envelope).payload == b"{}"


# Receiving


@pytest.mark.parametrize("field", ["id", "tenant", "name", "queue"])
def test_a_searchable_copy_that_disagrees_with_the_envelope_is_tampering(field: str) -> None:
    row = delivered()
    changed: dict[str, Any] = {field: "0195a000-0000-7000-8000-000000000000"}
    with pytest.raises(hesape.TamperedError, match="disagree"):
        received(row._replace(**changed), new_token())


def test_an_envelope_with_an_impossible_tenant_is_tampering_even_without_a_seal() -> None:
    row = delivered()
    content = decode(row.envelope)._replace(tenant="EVIL!")
    with pytest.raises(hesape.TamperedError, match="no valid tenant"):
        checked(row._replace(tenant="EVIL!", envelope=encode(content)))


def test_a_received_job_is_detached_until_it_is_popped() -> None:
    job = received(delivered(), new_token())
    with pytest.raises(hesape.DetachedError):
        hesape.grant_for(job)
    assert hesape.popped(FakeJob("a", "t"), "main", job).connection_name == "main"
    assert hesape.grant_for(job).tenant == "acme"


def test_the_workers_grant_is_the_systems_with_the_jobs_action_and_tenant_whatever_was_edited() -> None:
    job = hesape.popped(FakeJob("a", "t"), "main", received(delivered(), new_token()))
    job.tenant, job.action, job.authorized_by = "other", "invoice.delete", "anna"
    grant = hesape.grant_for(job)
    assert (grant.tenant, grant.action, grant.subject.id) == ("acme", "invoice.send", "system")


def test_retry_until_moves_by_the_time_between_push_and_retry() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    built = Job.new(GRANT, "a", attributes=Attributes(retry_until=until))
    job = hesape.popped(FakeJob("a", "t"), "main", received(delivered(built, retried_us=3_500_000), new_token()))
    assert job.retry_until == until + timedelta(seconds=3)
    assert job.attributes.retry_until == until


def test_backoff_is_indexed_by_the_failures_before_this_delivery() -> None:
    built = Job.new(GRANT, "a", attributes=Attributes(backoff=(1, 10)))
    job = hesape.popped(FakeJob("a", "t"), "main", received(delivered(built), new_token()))
    job.exceptions += 1
    assert job.backoff() == 1.0


# Settling


SETTLEMENTS: dict[str, Callable[[Job], object]] = {
    "release": lambda job: job.release(5),
    "delete": lambda job: job.delete(),
    "fail": lambda job: job.fail(ValueError("no")),
}


@pytest.mark.parametrize("first", SETTLEMENTS)
@pytest.mark.parametrize("second", SETTLEMENTS)
def test_a_job_settles_once(first: str, second: str) -> None:
    job = FakeJob("a", "t")
    SETTLEMENTS[first](job)
    if first == second:
        SETTLEMENTS[second](job)
    else:
        with pytest.raises(hesape.AlreadySettledError, match=f"{first}.*{second}"):
            SETTLEMENTS[second](job)
    assert job.is_settled
    assert (job.is_released, job.is_deleted, job.has_failed) == (
        first == "release",
        first != "release",
        first == "fail",
    )


def test_of_two_calls_of_one_kind_the_first_arguments_stand() -> None:
    job = FakeJob("a", "t")
    job.release(5)
    job.release(9)
    assert job.release_delay == timedelta(seconds=5)


def test_flags_change_only_once_the_store_has_accepted() -> None:
    class Refuses(FakeJob):
        def release_job(self, *_: object, **__: object) -> None:
            raise hesape.LeaseLostError

        def delete_jobs(self, jobs: Sequence[Job], **_: object) -> list[Job]:
            return list(jobs)

        def fail_job(self, *_: object, **__: object) -> None:
            raise hesape.StoreUnavailableError

    job = Refuses("a", "t")
    for settle in SETTLEMENTS.values():
        with pytest.raises((hesape.LeaseLostError, hesape.StoreUnavailableError)):
            settle(job)
    assert not job.is_settled
    assert not job.has_failed


def copies(job: Job) -> list[Job]:
    return [copy.copy(job), copy.deepcopy(job), attrs.evolve(job) if type(job) is Job else copy.copy(job)]


def test_a_detached_job_and_a_copy_of_an_attached_one_settle_nothing() -> None:
    attached_job = hesape.popped(FakeJob("a", "t"), "main", received(delivered(), new_token()))
    for job in (
        Job.new(GRANT, "a"),
        *copies(attached_job),
        *copies(FakeJob("a", "t")),
        pickle.loads(pickle.dumps(attached_job)),  # noqa: S301 - our own bytes
    ):
        for settle in SETTLEMENTS.values():
            with pytest.raises(hesape.DetachedError):
                settle(job)
        with pytest.raises(hesape.DetachedError):
            job.extend(5)
        with pytest.raises(hesape.DetachedError):
            job.record()
        with pytest.raises(hesape.DetachedError):
            hesape.grant_for(job)


def test_marking_as_failed_touches_nothing_else_and_needs_no_queue() -> None:
    for job in (Job.new(GRANT, "a"), FakeJob("a", "t")):
        job.mark_as_failed()
        assert job.has_failed
        assert not job.is_settled


def test_two_threads_that_settle_at_once_settle_once() -> None:
    accepted: list[str] = []

    class Counts(FakeJob):
        def release_job(self, *_: object, **__: object) -> None:
            accepted.append("release")

        def delete_jobs(self, jobs: Sequence[Job], **_: object) -> list[Job]:
            accepted.append("delete")
            return []

    for _ in range(50):
        job = Counts("a", "t")
        barrier = threading.Barrier(2)

        def settle(kind: str, job: Job = job, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            try:
                SETTLEMENTS[kind](job)
            except hesape.AlreadySettledError:
                return

        threads = [threading.Thread(target=settle, args=(kind,)) for kind in ("release", "delete")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(accepted) == 50


def test_a_record_hides_its_token_and_touch_never_shortens() -> None:
    token = new_token()
    record = hesape.popped(FakeJob("a", "t"), "main", received(delivered(), token)).record()
    assert record.token == token
    assert token.hex() not in repr(record)
    assert repr(token) not in repr(record)
    before = record.reserved_until
    assert record.touch(0) == record.touch(-5) == before
    later = record.touch(60)
    assert later is not None
    assert before is not None
    assert later > before
    assert record.touch(1) == later
    assert record.increment() == 2


def test_neither_token_nor_deadline_is_an_attribute_of_a_job() -> None:
    job = hesape.popped(FakeJob("a", "t"), "main", received(delivered(), new_token()))
    assert not {"token", "reserved_until", "_token"} & set(dir(job))
    assert attached(job).token == job.record().token


def test_the_payload_is_not_in_a_jobs_representation() -> None:
    assert "secret" not in repr(Job.new(GRANT, "a", {"password": "secret"}))


def test_decode_gives_json_values_and_names_the_job_when_a_type_does_not_fit() -> None:
    job = Job.new(GRANT, "invoice.send", {"a": 1})
    assert job.decode() == {"a": 1}
    assert job.decode(dict[str, int]) == {"a": 1}
    with pytest.raises(hesape.HesapeError, match=job.id):
        job.decode(list[int])
