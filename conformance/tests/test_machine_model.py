"""The model by itself: what it answers is written out here by hand, so that it and a store can't be wrong alike."""

from __future__ import annotations

import ast
from pathlib import Path

import hesape_conformance.machine.model as subject
from hesape_conformance.machine.model import Model, Refusal, Wanted, When, Where


def want(job: str, queue: str = "red", **options: object) -> Wanted:
    return Wanted(job=job, tenant="acme", queue=queue, **options)  # type: ignore[arg-type]


def pushed(*wanted: Wanted) -> Model:
    model = Model()
    for each in wanted:
        model, refused, _ = model.next_step().push([each])
        assert refused is None
    return model.next_step()


def line(model: Model, *queues: str, n: int = 9) -> str:
    return "".join(job.job for job in model.claim(queues or ("red",), n)[1].jobs)


def test_it_imports_nothing_but_what_values_need() -> None:
    tree = ast.parse(Path(subject.__file__).read_text(encoding="utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"__future__", "enum", "typing", "attrs", "collections.abc"}


def test_jobs_come_by_priority_then_by_when_they_became_due_then_in_push_order() -> None:
    model = pushed(want("A"), want("B", priority=7), want("C"), want("D", when=When.FAR))
    model, refused, known = model.push([want("E"), want("F", priority=7), want("A")])
    assert (refused, known) == (None, 1)
    assert line(model) == "BFACE"
    assert line(model, n=2) == "BF"


def test_queues_are_drained_in_the_order_they_are_named_and_paused_ones_are_passed_over() -> None:
    model = pushed(want("A"), want("B", "blue"), want("C", "green")).pause("green", on=True)
    assert line(model, "blue", "green", "red") == "BA"
    _, claimed = model.claim(("green",), 1)
    assert (claimed.jobs, claimed.passed_over) == ((), 1)
    assert line(model.pause("green", on=False), "green") == "C"


def test_a_released_job_goes_behind_its_equals_and_one_handed_back_or_lapsed_keeps_its_place() -> None:
    model, claimed = pushed(want("A"), want("B"), want("C")).claim(("red",), 2)
    first, second = ((job.job, job.delivery) for job in claimed.jobs)
    released, fine = model.next_step().release(*first, When.NOW, spent=False, error="Boom", exceptions=1)
    assert fine
    assert line(released.hand_back([second])) == "BCA"
    assert [released.jobs["A"].attempts, released.hand_back([second]).jobs["B"].attempts] == [0, 0]
    lapsed = model.lapse(["A", "B"])
    assert line(lapsed) == "ABC"
    assert (lapsed.jobs["A"].attempts, lapsed.jobs["A"].lapses) == (1, 1)


def test_only_the_current_delivery_settles_and_a_repeat_is_recognised_until_the_next() -> None:
    model, _ = pushed(want("A")).claim(("red",), 1)
    model, fine = model.release("A", 1, When.NOW, spent=True, error=None, exceptions=0)
    assert fine
    assert model.release("A", 1, When.FAR, spent=False, error="x", exceptions=9) == (model, True)
    assert model.fail("A", 1, error="x", exceptions=9) == (model, False)
    assert model.delete([("A", 1)]) == (model, [("A", 1)])
    model, _ = model.claim(("red",), 1)
    assert model.release("A", 1, When.NOW, spent=True, error=None, exceptions=0) == (model, False)
    gone, lost = model.delete([("A", 1), ("A", 2)])
    assert (gone.jobs, lost) == ({}, [("A", 1)])


def test_an_id_is_known_with_its_content_and_refused_with_another_and_a_bulk_is_all_or_nothing() -> None:
    model = pushed(want("A"))
    assert model.push([want("A", priority=7)])[1:] == (None, 1)
    after, refused, _ = model.push([want("B"), want("A", content=1), want("B", content=1)])
    assert (after, refused) == (model, (Refusal.DUPLICATE, (1, 2)))


def test_what_was_tampered_with_is_parked_at_its_claim_and_seen_by_the_operator_alone() -> None:
    model, claimed = pushed(want("A"), want("B")).tamper("A", "name").claim(("red",), 1)
    assert ([job.job for job in claimed.parked], claimed.jobs) == (["A"], ())
    assert [job.job for job in model.failed(None)] == ["A"]
    assert model.failed("acme") == []
    assert model.retry("acme", ["A"])[1] == (Refusal.NOT_FOUND, 0)
    assert model.retry(None, ["A"])[1] == (Refusal.TAMPERED, 0)
    assert model.push([want("A")])[1] is None, "its envelope is what it was"
    assert model.tamper("A", "envelope").push([want("A")])[1] is not None
    assert model.forget("acme", ["A"])[1] is None


def test_failed_jobs_are_listed_newest_first_and_repaired_within_their_tenant() -> None:
    model, _ = pushed(want("A"), want("B")).claim(("red",), 2)
    model, _ = model.next_step().fail("B", 2, error="Boom", exceptions=1)
    model, _ = model.next_step().fail("A", 1, error="Boom", exceptions=1)
    assert [job.job for job in model.failed("acme")] == ["A", "B"]
    assert model.failed("globex") == []
    assert model.retry("globex", ["A"])[1] == (Refusal.NOT_FOUND, 0)
    model, refused = model.next_step().retry("acme", ["B"])
    assert refused is None
    assert model.retry("acme", ["A", "B"])[1] == (Refusal.NOT_FAILED, 1)
    again = model.jobs["B"]
    assert (again.where, again.attempts, again.exceptions, again.error) == (Where.WAITING, 0, 0, None)
    assert model.flush()[1] == 1
    assert model.clear("red")[1] == 1
    assert model.queues() == ["red"]
