"""Every name of the system that this one comes from, under its name here, documented and behaving as it did there."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import hesape
from hesape import Attributes, Job, JobName
from hesape.jobs import Settles
from hesape.testing import FakeJob

GRANT = hesape.system_grant("invoice.send", "acme")
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)
SET = Attributes(tries=3, max_exceptions=2, timeout=9, retry_until=UNTIL, fail_on_timeout=True, wraps="Listener")


def job(**fields: object) -> Job:
    return Job.new(GRANT, "invoice.send", {"a": 1}, **fields)  # type: ignore[arg-type]


def after(settle: Callable[[FakeJob], object]) -> FakeJob:
    """A fake job to which something was done."""
    fake = FakeJob("a", "t")
    settle(fake)
    return fake


def accepted() -> bool:
    hesape.authorized(GRANT, job())
    return True


ROWS: dict[str, Callable[[], object]] = {
    "New": lambda: job(queue="q").queue == "q",
    "Authorized": accepted,
    "Prepare": lambda: isinstance(hesape.prepare(GRANT, job()), hesape.PreparedJob),
    "Popped": lambda: hesape.popped(FakeJob("a", "t"), "main", job()).connection_name == "main",
    "GrantFor": lambda: hesape.grant_for(FakeJob("a.b", "t")).action == "a.b",
    "Driver": lambda: isinstance(FakeJob("a", "t"), Settles) and issubclass(hesape.Driver, Settles),
    "UUID, GetJobID": lambda: len(job().id) == 36,
    "Queue": lambda: job().queue == "",
    "Name, GetName": lambda: job().name == "invoice.send",
    "DisplayName": lambda: job(display_name="Send").display_name == "Send",
    "RunAt": lambda: job(run_at=UNTIL).run_at == UNTIL and job().run_at is None,
    "Attempts": lambda: job().attempts == 0 and FakeJob("a", "t").attempts == 1,
    "LastError": lambda: job().last_error is None,
    "Exceptions": lambda: job().exceptions == 0,
    "Attributes": lambda: job(attributes=SET).attributes == SET,
    "TenantID": lambda: job().tenant == "acme",
    "AuthorizedBy": lambda: job().authorized_by == "system",
    "Action": lambda: job().action == "invoice.send",
    "Payload, GetRawBody": lambda: job().payload == b'{"a":1}',
    "Decode": lambda: job().decode() == {"a": 1},
    "Release, IsReleased": lambda: after(lambda fake: fake.release(1)).is_released,
    "Delete, IsDeleted": lambda: after(FakeJob.delete).is_deleted,
    "Fail, HasFailed": lambda: after(lambda fake: fake.fail("no")).has_failed,
    "MarkAsFailed": lambda: not after(FakeJob.mark_as_failed).is_settled,
    "IsDeletedOrReleased": lambda: not FakeJob("a", "t").is_settled,
    "MaxTries": lambda: (job(attributes=SET).max_tries, job().max_tries) == (3, 0),
    "MaxExceptions": lambda: (job(attributes=SET).max_exceptions, job().max_exceptions) == (2, 0),
    "Timeout": lambda: (job(attributes=SET).timeout, job().timeout) == (9, 0),
    "RetryUntil": lambda: (job(attributes=SET).retry_until, job().retry_until) == (UNTIL, None),
    "ShouldFailOnTimeout": lambda: job(attributes=SET).should_fail_on_timeout and not job().should_fail_on_timeout,
    "Backoff": lambda: job(attributes=Attributes(backoff=(1, 2))).backoff() == 1 and job().backoff() is None,
    "BackoffFor": lambda: Attributes(backoff=(1, 2)).backoff_for(7) == 2,
    "ResolveName": lambda: (job(display_name="Send").resolved_name, job().resolved_name) == ("Send", "invoice.send"),
    "ResolveQueuedJobClass": lambda: (
        job(attributes=SET).resolved_class == "Listener" and job().resolved_class == "invoice.send"
    ),
    "JobName.Parse": lambda: (
        JobName.parse("SendInvoice@handle") == ("SendInvoice", "handle")
        and JobName.parse("invoice.send") == ("invoice.send", "fire")
    ),
    "JobName.Resolve": lambda: JobName.resolve(job(display_name="Send")) == "Send",
    "JobName.ResolveClassName": lambda: JobName.resolve_class_name(job(attributes=SET)) == "Listener",
    "GetConnectionName, SetConnectionName": lambda: FakeJob("a", "t").connection_name == "fake",
    "DatabaseJobRecord, GetJobRecord": lambda: isinstance(FakeJob("a", "t").record(), hesape.JobRecord),
    "Increment": lambda: hesape.JobRecord(job(), None, b"").increment() == 1,
    "Touch, ReservedUntil": lambda: hesape.JobRecord(job(), None, b"").touch(0) is None,
    "DatabaseJob, SyncJob": lambda: hesape.DatabaseJob is hesape.SyncJob is Job,
    "FakeJob": lambda: (FakeJob("a", "t").release_delay, FakeJob("a", "t").failed_with) == (timedelta(0), None),
    "ReleaseDelay": lambda: after(lambda fake: fake.release(60)).release_delay == timedelta(minutes=1),
    "FailedWith": lambda: after(lambda fake: fake.fail("no")).failed_with == "no",
    "MaxPayload": lambda: hesape.MAX_PAYLOAD == 32 * 1024,
    "DefaultQueue": lambda: hesape.DEFAULT_QUEUE == "default",
    "Priority": lambda: hesape.prepare(GRANT, job()).job.priority == 100 and job(priority=0).priority == 0,
    "ErrNoTenant": lambda: issubclass(hesape.NoTenantError, hesape.HesapeError),
    "ErrNoName": lambda: issubclass(hesape.NoNameError, hesape.HesapeError),
    "ErrForged": lambda: issubclass(hesape.ForgedError, hesape.HesapeError),
    "ErrPayloadTooLarge": lambda: issubclass(hesape.PayloadTooLargeError, hesape.HesapeError),
    "ErrDetached": lambda: issubclass(hesape.DetachedError, hesape.HesapeError),
}


@pytest.mark.parametrize("row", ROWS)
def test_it_behaves_as_its_row_says(row: str) -> None:
    assert ROWS[row]()


@pytest.mark.parametrize("owner", [Job, JobName, hesape.JobRecord, FakeJob, Attributes, Settles])
def test_what_is_public_is_documented(owner: type) -> None:
    undocumented = [
        name
        for name, member in vars(owner).items()
        if not name.startswith("_")
        and (inspect.isroutine(member) or isinstance(member, property))
        and not inspect.getdoc(getattr(owner, name, member))
    ]
    assert inspect.getdoc(owner)
    assert undocumented == []


def test_functions_are_documented() -> None:
    for function in (hesape.authorized, hesape.prepare, hesape.popped, hesape.grant_for):
        assert inspect.getdoc(function)
