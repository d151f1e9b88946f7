"""X1, S4: pushing and settling in a transaction that the application commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hesape import errors
from hesape.driver import Capability
from hesape.jobs import key_of
from hesape_conformance.catalogue import refusal, rule
from hesape_conformance.expect import raises
from hesape_conformance.rules.order import numbers
from hesape_conformance.trial import NAME, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape.jobs import Job
    from hesape.queue import Queue
    from hesape_conformance.trial import Trial

TX = Capability.TRANSACTIONS

ENDS: dict[str, Callable[[Job, object], None]] = {
    "delete": lambda job, tx: job.delete(tx=tx),
    "release": lambda job, tx: job.release(60, tx=tx),
    "fail": lambda job, tx: job.fail("Boom: in tx", tx=tx),
}


def doors(trial: Trial, queue: Queue, tx: object) -> dict[str, Callable[[], object]]:
    """Every push, in a transaction."""
    grant = trial.grant()
    return {
        "push": lambda: queue.push(grant, trial.job(), tx=tx),
        "push_on": lambda: queue.push_on(grant, "default", trial.job(), tx=tx),
        "later": lambda: queue.later(grant, 60, trial.job(), tx=tx),
        "bulk": lambda: queue.bulk(grant, [trial.job(), trial.job()], tx=tx),
        "push_raw": lambda: queue.push_raw(grant, NAME, b"{}", tx=tx),
    }


@refusal(TX)
def unsupported(trial: Trial) -> None:
    """Every push and every settlement refuses `tx=` by its class, before any I/O."""
    job = trial.taken()
    with trial.unchanged():
        for queue in (trial.queue, trial.without_store()):
            for push in doors(trial, queue, object()).values():
                with raises(errors.UnsupportedError, trial.spec.name):
                    push()
        trial.driver.close()
        for end in ENDS.values():
            with raises(errors.UnsupportedError, trial.spec.name):
                end(job, object())
        with raises(errors.UnsupportedError):
            trial.driver.delete_jobs([job], tx=object())
        assert not job.is_settled
    job.delete()


@rule("X1", "A push is invisible until the caller commits, and then there, through every door", capability=TX)
def visible_at_commit(trial: Trial) -> None:
    loan = trial.lend()
    for door in doors(trial, trial.queue, None):
        loan.begin()
        doors(trial, trial.queue, loan.connection)[door]()
        loan.write(door)
        assert trial.rows() == {}, f"{door}: visible before the commit"
        loan.commit()
        assert len(trial.rows()) == (2 if door == "bulk" else 1), f"{door}: not there after the commit"
        assert trial.queue.counts().size == len(trial.rows())
        trial.queue.operator().clear("default")
    assert loan.written() == list(doors(trial, trial.queue, None))


@rule("X1", "After a rollback nothing of the push is left, its unique key neither", capability=TX)
def gone_after_rollback(trial: Trial) -> None:
    loan = trial.lend()
    keyed = attributes(unique_for=60, unique_key="k")
    for door in doors(trial, trial.queue, None):
        loan.begin()
        loan.write(door)
        doors(trial, trial.queue, loan.connection)[door]()
        trial.queue.push(trial.grant(), trial.job(attributes=keyed), tx=loan.connection)
        loan.rollback()
        assert trial.rows() == {}, door
        assert trial.raw.entries() == 0, door
    assert loan.written() == []
    trial.push(attributes=keyed)
    assert len(trial.queue.pop(n=5)) == 1


@rule("X1", "A savepoint that is rolled back takes the pushes after it along, and no others", capability=TX)
def savepoints(trial: Trial) -> None:
    loan = trial.lend()
    loan.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 0}), tx=loan.connection)
    loan.savepoint("one")
    trial.queue.push(trial.grant(), trial.job({"n": 1}), tx=loan.connection)
    trial.queue.bulk(trial.grant(), [trial.job({"n": 2})], tx=loan.connection)
    loan.rollback_to("one")
    trial.queue.push(trial.grant(), trial.job({"n": 3}), tx=loan.connection)
    loan.commit()
    assert numbers(trial.queue.pop(n=9)) == [0, 3]


@rule("X1", "The driver neither commits nor rolls back what it was lent, and changes no setting of it", capability=TX)
def left_alone(trial: Trial) -> None:
    loan = trial.lend()
    before = dict(loan.session())
    stored = trial.push({"n": 0})
    loan.begin()
    inside = dict(loan.session())
    loan.write("mine")
    for push in doors(trial, trial.queue, loan.connection).values():
        push()
        assert loan.written() == [], "the driver committed"
    assert dict(loan.session()) == inside
    loan.savepoint("before")
    with raises(errors.DuplicateJobError):
        trial.queue.push(trial.grant(), trial.job({"n": 1}, id=stored.id), tx=loan.connection)
    loan.rollback_to("before")
    loan.commit()
    assert loan.written() == ["mine"], "the driver rolled back"
    assert dict(loan.session()) == before
    assert trial.queue.counts().size == 7


@rule("X1", "Refusals of core come before anything is sent, and the transaction goes on", capability=TX)
def refusals_inside(trial: Trial) -> None:
    loan = trial.lend()
    loan.begin()
    forged = trial.job()
    forged.tenant = "globex"
    with raises(errors.ForgedError):
        trial.queue.push(trial.grant(), forged, tx=loan.connection)
    with raises(errors.ForgedError):
        trial.queue.bulk(trial.grant(), [trial.job(), forged], tx=loan.connection)
    loan.write("mine")
    trial.queue.push(trial.grant(), trial.job({"n": 1}), tx=loan.connection)
    loan.commit()
    assert loan.written() == ["mine"]
    assert numbers(trial.queue.pop(n=5)) == [1]


@rule("X1", "The same id, pushed again in the transaction or out of it, is harmless", capability=TX)
def same_id(trial: Trial) -> None:
    loan = trial.lend()
    job = trial.push({"n": 1})
    loan.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 1}, id=job.id), tx=loan.connection)
    second = trial.job({"n": 2})
    for _ in range(2):
        trial.queue.push(trial.grant(), second, tx=loan.connection)
    loan.commit()
    trial.queue.push(trial.grant(), second)
    assert numbers(trial.queue.pop(n=9)) == [1, 2]


@rule("X1", "A connection that can't be joined is refused by name, for a push and for a settlement", capability=TX)
def unsuitable(trial: Trial) -> None:
    job = trial.taken()
    strange: dict[str, Any] = {"an object": object(), "text": "conn", "a driver": trial.driver, "True": True}
    with trial.harness.unsuitable(trial.namespace) as connections:
        assert {"autocommit", "another database"} <= connections.keys()
        with trial.unchanged():
            for what, connection in {**strange, **connections}.items():
                for door, push in doors(trial, trial.queue, connection).items():
                    try:
                        push()
                    except errors.TransactionRefusedError as error:
                        assert str(error), what
                    else:
                        message = f"{door}: {what} was taken for a transaction"
                        raise AssertionError(message)
                for end in ENDS.values():
                    with raises(errors.TransactionRefusedError):
                        end(job, connection)
                assert not job.is_settled


@rule("X1", "Two transactions at once each bring their own", capability=TX)
def two_at_once(trial: Trial) -> None:
    one = trial.lend()
    one.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 1}), tx=one.connection)
    one.commit()
    two = trial.lend()
    two.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 2}), tx=two.connection)
    two.rollback()
    one.begin()
    trial.queue.push(trial.grant(), trial.job({"n": 3}), tx=one.connection)
    one.commit()
    assert numbers(trial.queue.pop(n=9)) == [1, 3]


@rule("S4", "A settlement commits with the handler's writes, or neither does", capability=TX)
def both_or_neither(trial: Trial) -> None:
    loan = trial.lend()
    written: list[str] = []
    for kind, end in ENDS.items():
        for commit in (False, True):
            job = trial.taken(queue=kind)
            before = trial.row(job)
            loan.begin()
            loan.write(f"{kind} {commit}")
            end(job, loan.connection)
            assert job.is_settled
            assert trial.row(job) == before, f"{kind}: visible before the commit"
            if commit:
                loan.commit()
                written.append(f"{kind} {commit}")
                row = trial.rows().get(job.id)
                assert (row and row["state"]) == {"delete": None, "release": "scheduled", "fail": "failed"}[kind]
            else:
                loan.rollback()
                assert trial.row(job) == before, f"{kind}: kept after a rollback"
                trial.driver.delete_jobs([job])
            assert loan.written() == written
        trial.queue.operator().flush()
        trial.queue.operator().clear(kind)


@rule("S4", "After a rollback the delivery is still current, and after a commit it is lost to a fenced release",
      capability=TX)  # fmt: skip
def provisional(trial: Trial) -> None:
    loan = trial.lend()
    for kind, end in ENDS.items():
        job = trial.taken(queue=kind)
        loan.begin()
        end(job, loan.connection)
        loan.rollback()
        trial.driver.release_job(job, 0)
        job = trial.take(kind)
        assert job.attempts == 2
        loan.begin()
        end(job, loan.connection)
        loan.commit()
        if kind == "release":
            trial.driver.release_job(job, 0)  # a repeat under its token is a no-op, and the committed delay stands
            assert trial.tally(kind) == (0, 1, 0, 0)
        else:
            with raises(errors.LeaseLostError):
                trial.driver.release_job(job, 0)


@rule("S4", "A stale delivery settles nothing in a transaction either", capability=TX)
def stale(trial: Trial) -> None:
    loan = trial.lend()
    for kind, end in ENDS.items():
        job = trial.lapsed(queue=kind)
        with trial.unchanged():
            loan.begin()
            with raises(errors.LeaseLostError):
                end(job, loan.connection)
            assert not job.is_settled
            assert trial.driver.delete_jobs([job], tx=loan.connection) == [job]
            loan.commit()
        current = trial.take(kind)
        loan.begin()
        end(current, loan.connection)
        loan.commit()
        assert not trial.driver._extend([key_of(current)], 0)[0]  # noqa: SLF001 - a driver's own method is the subject


@rule("S4", "Many deletes join a transaction, and a push beside them", capability=TX)
def deletes_and_push(trial: Trial) -> None:
    loan = trial.lend()
    trial.push_many(3)
    jobs = trial.queue.pop(n=3)
    loan.begin()
    assert trial.driver.delete_jobs(jobs[:2], tx=loan.connection) == []
    trial.queue.push(trial.grant(), trial.job({"n": 9}), tx=loan.connection)
    loan.rollback()
    assert len(trial.rows()) == 3
    loan.begin()
    assert trial.driver.delete_jobs(jobs[:2], tx=loan.connection) == []
    trial.queue.push(trial.grant(), trial.job({"n": 9}), tx=loan.connection)
    loan.commit()
    assert len(trial.rows()) == 2
    assert numbers(trial.queue.pop(n=9)) == [9]
