from __future__ import annotations

import inspect

import attrs

from hesape import events
from hesape.events import Event, JobAttempted, JobEvent, WorkerEvent, facts_of
from hesape.testing import FakeJob

JOB = {
    *("queueing", "queued", "popped", "processing", "processed", "attempted", "exception", "released", "failed"),
    *("timed out", "retried"),
}
WORKER = {"starting", "looping", "stopping"}
QUEUE = {"paused", "resumed", "busy", "failed over"}


def every() -> list[type[Event]]:
    found = [value for _, value in inspect.getmembers(events, inspect.isclass) if issubclass(value, Event)]
    return [one for one in found if one.kind]


def test_every_event_that_the_design_names_is_there_once() -> None:
    kinds = [one.kind for one in every()]
    assert sorted(kinds) == sorted(JOB | WORKER | QUEUE)


def test_an_event_carries_plain_values_and_no_payload_grant_or_url() -> None:
    names = {field.name: field.type for one in every() for field in attrs.fields(one)}
    assert {"payload", "grant", "url", "attributes", "job", "last_error"} & names.keys() == set()
    assert set(names.values()) == {"str", "int", "float", "tuple[str, ...]"}


def test_every_event_about_a_job_says_which_of_whom_and_where() -> None:
    job = FakeJob("invoice.send", "acme", {"secret": 42})
    said = JobAttempted(**facts_of(job), duration_s=0.5, outcome="processed")
    assert (said.id, said.name, said.queue, said.tenant, said.attempt) == (job.id, "invoice.send", "default", "acme", 1)
    assert "42" not in repr(said)
    wanted = set(facts_of(job))
    assert all(wanted <= {field.name for field in attrs.fields(one)} for one in every() if issubclass(one, JobEvent))


def test_every_event_about_a_worker_names_it_and_its_connection() -> None:
    for one in every():
        if issubclass(one, WorkerEvent):
            assert {"worker", "connection"} <= {field.name for field in attrs.fields(one)}
