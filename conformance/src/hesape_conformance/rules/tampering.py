"""G8: records that were changed behind the driver's back, and seals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from hesape import envelope
from hesape.envelope import Keys
from hesape_conformance.catalogue import rule
from hesape_conformance.trial import NAME, OTHER_TENANT, TENANT

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

OLD, NEW = Keys(secrets={"k1": b"1" * 32}, sealing="k1"), Keys(secrets={"k1": b"1" * 32, "k2": b"2" * 32}, sealing="k2")
QUEUES = ("default", "other")


def parks(trial: Trial, queue: Queue, job_id: str, what: str) -> None:
    """Expect that a record isn't delivered but parked, with the reason, and that it stays there."""
    for _ in range(2):
        assert [job.id for job in queue.pop(QUEUES, n=5)] == [], f"{what}: it was delivered"
    row = trial.rows()[job_id]
    assert row["state"] == "failed", f"{what}: it is {row['state']}"
    assert (row["last_error"] or "").startswith("TamperedError: "), f"{what}: {row['last_error']!r}"
    [shown] = [found for found in queue.operator().failed(limit=1000) if found.id == job_id]
    assert shown.last_error == row["last_error"]
    queue.operator().forget(job_id)


@rule("G8", "A searchable copy that disagrees with the envelope parks the record, sealed or not")
def copies(trial: Trial) -> None:
    for queue in (trial.queue, trial.signed(OLD)):
        for field, value in (("tenant", OTHER_TENANT), ("name", "root"), ("queue", "other")):
            job = queue.push(trial.grant(), trial.job())
            field_name: Any = field
            trial.raw.overwrite(job.id, field_name, value)
            parks(trial, queue, job.id, field)


@rule("G8", "An envelope that says something else than it did parks, even without keys, where its copies tell")
def replaced(trial: Trial) -> None:
    for field in ("id", "tenant", "name", "queue"):
        job = trial.push()
        content = envelope.decode(trial.row(job)["envelope"])
        other: Any = {"id": trial.job().id, "tenant": OTHER_TENANT, "name": "root", "queue": "other"}[field]
        changed = envelope.Content._make(other if name == field else value for name, value in content._asdict().items())
        trial.raw.overwrite(job.id, "envelope", envelope.encode(changed))
        parks(trial, trial.queue, job.id, field)
    first, second = trial.push({"n": 1}), trial.push({"n": 2})
    trial.raw.overwrite(first.id, "envelope", trial.row(second)["envelope"])
    assert [job.id for job in trial.queue.pop(n=2)] == [second.id]
    parks(trial, trial.queue, first.id, "another job's envelope")


@rule("G8", "Bytes that are no envelope park, whatever they are")
def rubbish(trial: Trial) -> None:
    good = trial.row(trial.push())["envelope"]
    trial.take().delete()
    head, body = good.split(b"\n", 1)
    broken = (
        b"",
        b"\n",
        b"\0" * 40,
        b"\xff\xfe\xfd",
        b"not an envelope at all",
        head,
        head + b"\n",
        body,
        head + b"\n{}\n{}",
        head + b"\n[]\n{}",
        good.replace(b'"acme"', b'"Acme"'),
        good.replace(b'"acme"', b'""'),
        good.replace(b'"acme"', b"7"),
        good.replace(NAME.encode(), b"", 1),
        head + b"\n" + b"[" * 5000 + b"\n{}",
    )
    for data in broken:
        job = trial.push()
        trial.raw.overwrite(job.id, "envelope", data)
        parks(trial, trial.queue, job.id, repr(data[:40]))


@rule("G8", "A seal covers every byte of the envelope")
def every_byte(trial: Trial) -> None:
    queue = trial.signed(OLD)
    payload = {"amount": 100, "to": "é"}
    good = trial.row(queue.push(trial.grant(), trial.job(payload)))["envelope"]
    start, step = 0, trial.times(9, 3, 1)
    places = sorted({*range(start, len(good), step), len(good) - 1})
    jobs: dict[str, int] = {}
    queue.pop()[0].delete()
    for place in places:
        job = queue.push(trial.grant(), trial.job(payload))
        data = bytearray(trial.row(job)["envelope"])
        data[place % len(data)] ^= 1 << trial.random.randrange(8)
        trial.raw.overwrite(job.id, "envelope", bytes(data))
        jobs[job.id] = place
    assert queue.pop(n=len(jobs) + 1) == []
    for job_id, row in trial.rows().items():
        # A flipped bit of the key's id or of the version's number names another key or version: handed back, never run.
        if row["state"] != "failed":
            assert jobs[job_id] < len(b"hesape1 k1 "), f"byte {jobs[job_id]} of the envelope isn't covered"


@rule("G8", "A sealed payload, author, action or attribute that was edited parks")
def edited_content(trial: Trial) -> None:
    queue = trial.signed(OLD)
    for old, new in ((b"100", b"999"), (b'"system"', b'"ada"'), (b'"invoice.send","system"', b'"root","system"')):
        job = queue.push(trial.grant(), trial.job({"amount": 100}))
        data = trial.row(job)["envelope"]
        assert old in data
        trial.raw.overwrite(job.id, "envelope", data.replace(old, new, 1))
        parks(trial, queue, job.id, repr(new))
    job = queue.push(trial.grant(), trial.job())
    trial.raw.overwrite(job.id, "envelope", _resealed(trial.row(job)["envelope"], b"0" * 64))
    parks(trial, queue, job.id, "another seal")
    job = queue.push(trial.grant(), trial.job())
    trial.raw.overwrite(job.id, "envelope", _unsealed(trial.row(job)["envelope"]))
    parks(trial, queue, job.id, "the seal removed")


def _resealed(data: bytes, seal: bytes) -> bytes:
    head, body = data.split(b"\n", 1)
    return b" ".join([*head.split(b" ")[:2], seal]) + b"\n" + body


def _unsealed(data: bytes) -> bytes:
    return b"hesape1 - -\n" + data.split(b"\n", 1)[1]


@rule("G8", "With keys, a record without a seal parks unless unsealed ones are accepted")
def unsealed(trial: Trial) -> None:
    strict = trial.signed(OLD)
    lax = trial.signed(Keys(secrets=OLD.secrets, sealing="k1", accept_unsealed=True))
    job = trial.push()
    parks(trial, strict, job.id, "unsealed")
    job = trial.push()
    assert trial.take(queue=lax).id == job.id


@rule("G8", "Rotation: old keys are read, new ones seal")
def rotation(trial: Trial) -> None:
    before, after = trial.signed(OLD), trial.signed(NEW)
    job = before.push(trial.grant(), trial.job({"n": 1}))
    assert trial.row(job)["envelope"].startswith(b"hesape1 k1 ")
    assert trial.take(queue=after).payload == b'{"n":1}'
    job = after.push(trial.grant(), trial.job({"n": 2}))
    assert trial.row(job)["envelope"].startswith(b"hesape1 k2 ")
    assert trial.take(queue=after).payload == b'{"n":2}'


@rule("G8", "A record for another key, or for a newer version, is handed back for a minute with nothing spent")
def unreadable(trial: Trial) -> None:
    def for_newer(job: Job) -> None:
        trial.raw.overwrite(job.id, "envelope", re.sub(rb"^hesape1", b"hesape2", trial.row(job)["envelope"]))

    def as_it_is(job: Job) -> None:
        del job

    cases: list[tuple[str, Queue, Queue, Callable[[Job], None]]] = [
        ("another key", trial.signed(NEW), trial.signed(OLD), as_it_is),
        ("a worker without keys", trial.signed(OLD), trial.queue, as_it_is),
        ("a newer version", trial.queue, trial.queue, for_newer),
        ("a newer version, sealed", trial.signed(OLD), trial.signed(OLD), for_newer),
    ]
    for what, pushing, popping, change in cases:
        job = pushing.push(trial.grant(), trial.job())
        change(job)
        before = trial.driver.now()
        assert popping.pop() == [], what
        assert trial.tally() == (0, 1, 0, 0), what
        row = trial.row(job)
        assert (row["attempts"], row["lapses"], row["exceptions"]) == (0, 0, 0), what
        assert row["last_error"] is None, what
        next_due = trial.peek().next_due_us
        assert next_due is not None, what
        assert 59e6 < next_due - before < 75e6, what
        trial.queue.operator().clear("default")


@rule("G8", "Good records beside a bad one are delivered in the same pop, in their order")
def neighbours(trial: Trial) -> None:
    jobs = trial.push_many(5)
    trial.raw.overwrite(jobs[2].id, "tenant", OTHER_TENANT)
    found = trial.queue.pop(n=5)
    assert [job.id for job in found] == [job.id for job in jobs if job is not jobs[2]]
    assert {job.tenant for job in found} == {TENANT}
    parks(trial, trial.queue, jobs[2].id, "tenant")


@rule("G8", "A record that was changed while it was reserved, released or failed never runs again")
def later_changes(trial: Trial) -> None:
    job = trial.taken()
    trial.raw.overwrite(job.id, "name", "root")
    job.release()
    parks(trial, trial.queue, job.id, "while reserved")
    job = trial.lapsed()
    trial.raw.overwrite(job.id, "tenant", OTHER_TENANT)
    parks(trial, trial.queue, job.id, "after its lease")
    job = trial.push(delay=0.05)
    trial.raw.overwrite(job.id, "name", "root")
    trial.until(trial.driver.now() + 100_000)
    parks(trial, trial.queue, job.id, "while delayed")
