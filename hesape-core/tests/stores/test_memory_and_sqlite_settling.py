"""Storing and settling, on both embedded stores."""

from __future__ import annotations

from typing import Any

import pytest

from hesape.envelope import Keys
from hesape.errors import AlreadyQueuedError, DuplicateJobError
from hesape.jobs import new_id
from hesape.records import Key, Unique, new_token


def test_the_same_job_again_is_harmless_whatever_became_of_it(bench: Any) -> None:
    row = bench.row()
    bench.store(row)
    bench.store(row._replace(priority=1, delay_us=5))
    assert bench.counts() == (1, 0, 0, 0)
    (key,) = bench.take()
    bench.store(row)
    assert bench.counts() == (0, 0, 1, 0)
    bench.fail(key)
    bench.store(row)
    assert bench.counts() == (0, 0, 0, 1)


def test_a_seal_is_no_content(bench: Any) -> None:
    keys = Keys(secrets={"k": b"0123456789abcdef"}, sealing="k")
    job_id = bench.push()
    bench.push(id=job_id, keys=keys)
    assert bench.counts() == (1, 0, 0, 0)


@pytest.mark.parametrize("other", [{"payload": b"[1]"}, {"tenant": "globex"}, {"queue": "elsewhere"}])
def test_the_same_id_with_other_content_is_refused_and_changes_nothing(bench: Any, other: dict[str, Any]) -> None:
    job_id = bench.push()
    with pytest.raises(DuplicateJobError) as caught:
        bench.push(id=job_id, **other)
    assert caught.value.index is None
    assert bench.counts() == (1, 0, 0, 0)
    assert bench.driver.queues() == ["default"]


def test_a_bulk_is_all_or_nothing_and_names_the_index(bench: Any) -> None:
    taken = bench.push()
    rows = [bench.row(), bench.row(), bench.row(id=taken, payload=b"[1]"), bench.row()]
    with pytest.raises(DuplicateJobError) as caught:
        bench.store(*rows)
    assert caught.value.index == 2
    assert bench.ids() == [taken]


def test_an_id_that_a_bulk_repeats_is_stored_once_or_named(bench: Any) -> None:
    row = bench.row()
    bench.store(bench.row(), row, row)
    assert bench.counts() == (2, 0, 0, 0)
    other = bench.row()
    with pytest.raises(DuplicateJobError) as caught:
        bench.store(other, bench.row(id=other.id, payload=b"[1]"))
    assert caught.value.index == 1
    assert bench.counts() == (2, 0, 0, 0)


def test_a_bulk_with_known_jobs_stores_the_new_ones_in_order(bench: Any) -> None:
    known = bench.row()
    bench.store(known)
    bench.advance(1)
    new = [bench.row(), bench.row()]
    bench.store(new[0], known, new[1])
    assert bench.ids() == [known.id, new[0].id, new[1].id]


def test_a_unique_key_is_held_for_its_time_whatever_becomes_of_the_job(bench: Any) -> None:
    unique = Unique("unique:a", 10_000_000)
    first = bench.row(unique=unique)
    bench.store(first)
    bench.store(first)
    (key,) = bench.take()
    bench.driver._delete([key], repeat=False, tx=None)
    with pytest.raises(AlreadyQueuedError):
        bench.push(unique=unique)
    bench.now_us += 9_999_999
    with pytest.raises(AlreadyQueuedError):
        bench.store(first)
    assert bench.counts() == (0, 0, 0, 0)
    bench.now_us += 1
    bench.push(unique=unique)
    with pytest.raises(AlreadyQueuedError):
        bench.push(unique=unique)


def test_a_unique_key_within_a_bulk_names_the_second_and_leaves_nothing(bench: Any) -> None:
    unique = Unique("unique:a", 10_000_000)
    with pytest.raises(AlreadyQueuedError) as caught:
        bench.store(bench.row(), bench.row(unique=unique), bench.row(unique=unique))
    assert caught.value.index == 2
    assert bench.counts() == (0, 0, 0, 0)
    bench.push(unique=unique)


def test_deleting_says_what_was_lost(bench: Any) -> None:
    bench.store(bench.row(), bench.row())
    first, second = bench.take(2)
    stranger = Key(second.id, new_token())
    absent = Key(new_id(), first.token)
    assert bench.driver._delete([first, stranger, absent], repeat=False, tx=None) == [stranger, absent]
    assert bench.driver._delete([first, absent], repeat=True, tx=None) == []
    assert bench.driver._delete([stranger], repeat=True, tx=None) == [stranger]
    assert bench.driver._delete([second], repeat=False, tx=None) == []
    assert bench.driver._delete([], repeat=False, tx=None) == []


def test_releasing_stores_the_error_and_waits(bench: Any) -> None:
    job = bench.push()
    (key,) = bench.take()
    assert bench.release(key, delay_s=5)
    assert bench.counts() == (0, 1, 0, 0)
    bench.advance(5)
    (row,) = bench.claim().rows
    assert (row.id, row.attempts, row.exceptions, row.last_error) == (job, 2, 1, "released")
    assert row.due_us == bench.now_us


def test_releasing_unspent_gives_the_attempt_back(bench: Any) -> None:
    bench.push()
    (key,) = bench.take()
    assert bench.release(key, spent=False)
    assert bench.claim().rows[0].attempts == 1


def test_releasing_again_is_a_no_op_until_the_next_delivery(bench: Any) -> None:
    bench.push()
    (key,) = bench.take()
    assert bench.release(key, delay_s=1)
    assert bench.release(key, delay_s=99)
    assert not bench.fail(key)
    bench.advance(2)
    assert bench.claim(queues=("other", "default"), n=1).rows[0].attempts == 2
    assert not bench.release(key)


def test_failing_parks_and_again_is_a_no_op(bench: Any) -> None:
    bench.push()
    (key,) = bench.take()
    assert bench.fail(key, "Boom: it broke")
    assert bench.fail(key, "another")
    assert not bench.release(key)
    (row,) = bench.driver.failed(None, queue=None, limit=5, before=None)
    assert (row.last_error, row.exceptions, row.failed_us) == ("Boom: it broke", 1, bench.now_us)
    assert row.reserved_until_us is None
    assert bench.ids() == []


def test_extending_moves_the_deadline_forward_never_back(bench: Any) -> None:
    bench.store(bench.row(), bench.row())
    first, second = bench.take(2, lease_s=10)
    stranger = Key(second.id, new_token())
    start = bench.now_us
    assert bench.driver._extend([first, stranger], 20_000_000) == [start + 20_000_000, None]
    assert bench.driver._extend([first, second], 1_000_000) == [start + 20_000_000, start + 10_000_000]
    assert bench.driver._extend([second], 0) == [start + 10_000_000]
    bench.advance(15)
    assert bench.counts() == (1, 0, 1, 0)


def test_a_beat_renews_what_a_worker_holds_and_names_paused_queues(bench: Any) -> None:
    for _ in range(3):
        bench.push()
    mine, spared, other = bench.take(worker="w"), bench.take(worker="w"), bench.take(worker="v")
    bench.driver.pause("elsewhere")
    bench.advance(29)
    assert bench.driver.beat("w", 8_000_000, 60_000_000, [spared[0].id]) == {"elsewhere"}
    assert bench.driver._extend([*mine, *spared], 0) == [bench.now_us + 31_000_000] * 2
    bench.advance(2)
    bench.driver.beat("w", 8_000_000, 60_000_000, [spared[0].id])
    until, now = bench.now_us + 29_000_000, bench.now_us
    assert bench.driver._extend([*mine, *spared, *other], 0) == [now + 60_000_000, until, until]


def test_a_beat_does_not_revive_a_lease_that_ran_out(bench: Any) -> None:
    bench.push()
    (key,) = bench.take(worker="w", lease_s=1)
    bench.advance(1)
    bench.driver.beat("w", 8_000_000, 60_000_000)
    assert bench.driver._extend([key], 0) == [None]


def test_retiring_frees_what_a_worker_held_in_its_place(bench: Any) -> None:
    first, second = bench.store(bench.row(), bench.row())
    (key,) = bench.take(worker="w")
    bench.driver.beat("w", 8_000_000, 60_000_000)
    assert bench.driver.retire("w") == 1
    assert bench.driver.retire("w") == 0
    assert bench.driver.workers() == []
    assert not bench.release(key)
    assert [(row.id, row.lapses, row.attempts) for row in bench.claim().rows] == [(first, 1, 2), (second, 0, 1)]


def test_retiring_nobody_frees_nothing_that_has_no_worker(bench: Any) -> None:
    bench.push()
    bench.take()
    assert bench.driver.retire("") == 0
    assert bench.counts() == (0, 0, 1, 0)


def test_rescuing_frees_what_silent_workers_held_and_nothing_else(bench: Any) -> None:
    bench.store(*(bench.row() for _ in range(3)))
    bench.take(worker="")
    for worker in ("live", "silent"):
        bench.driver.beat(worker, 8_000_000, 60_000_000)
        bench.take(worker=worker)
    bench.advance(7)
    bench.driver.beat("live", 8_000_000, 60_000_000)
    assert bench.driver.rescue() == 0
    bench.advance(1)
    assert bench.driver.rescue() == 1
    assert [row.worker for row in bench.driver.workers()] == ["live"]
    assert bench.counts() == (1, 0, 2, 0)


def test_workers_tell_their_beat_and_what_they_hold_since_when(bench: Any) -> None:
    bench.store(bench.row(), bench.row())
    bench.driver.beat("b", 8_000_000, 60_000_000)
    claimed_at = bench.now_us
    bench.take(2, worker="b")
    bench.advance(1)
    bench.driver.beat("a", 8_000_000, 60_000_000)
    beat_at = bench.now_us
    assert [tuple(row) for row in bench.driver.workers()] == [
        ("a", beat_at, 0, None),
        ("b", claimed_at, 2, claimed_at),
    ]
