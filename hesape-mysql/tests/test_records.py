from __future__ import annotations

import random
import uuid

from hesape.records import Key, NewRow, Row, new_token
from hesape_mysql import records


def packed(row: Row, state: records.State, at_us: int) -> bytes:
    """As the statement packs it."""
    texts = [row.tenant.encode(), row.name.encode(), row.queue.encode()]
    error = None if row.last_error is None else row.last_error.encode()
    numbers = [state, at_us, row.priority, row.due_us, row.attempts, row.lapses, row.exceptions, row.pushed_us]
    numbers += [row.retried_us or 0, *map(len, texts), -1 if error is None else len(error)]
    head = " ".join([uuid.UUID(row.id).hex.upper(), *map(str, map(int, numbers))])
    return head.encode() + b"\n" + b"".join(texts) + (error or b"") + row.envelope


ROW = Row(
    id="01a231d2-97d2-70cf-bd9e-816f9945a5c3",
    envelope=b"\n envelope \x00",
    tenant="acme",
    name="näme with\nbreak",
    queue="q",
    priority=-7,
    due_us=1,
    attempts=2,
    lapses=3,
    exceptions=4,
    last_error="böse\n",
    reserved_until_us=None,
    pushed_us=5,
    retried_us=6,
    failed_us=None,
)


def test_a_packed_row_comes_back_whatever_its_texts_hold() -> None:
    assert records.unpack(packed(ROW, records.State.READY, 1)) == ROW
    bare = ROW._replace(last_error=None, retried_us=None, tenant="", envelope=b"")
    assert records.unpack(packed(bare, records.State.SCHEDULED, 9)) == bare
    assert records.unpack(packed(ROW._replace(last_error=""), records.State.READY, 1)).last_error == ""


def test_the_one_moment_means_what_the_state_says() -> None:
    assert records.unpack(packed(ROW, records.State.RESERVED, 99)) == ROW._replace(reserved_until_us=99)
    assert records.unpack(packed(ROW, records.State.FAILED, 98)) == ROW._replace(failed_us=98)
    claimed = records.unpack(packed(ROW, records.State.READY, 1), 77)
    assert claimed == ROW._replace(reserved_until_us=77, attempts=ROW.attempts + 1)


def test_what_was_tampered_with_still_decodes() -> None:
    row = packed(ROW, records.State.READY, 1).replace("ä".encode(), b"\xff\xfe")
    assert records.unpack(row).name == "n��me with\nbreak"


def test_every_value_in_a_statement_is_digits_or_hexadecimal() -> None:
    nasty = "'; drop table x; -- \\ \" \N{PILE OF POO}"
    row = NewRow(ROW.id, nasty.encode(), nasty, nasty, nasty, 1, None, 0, None)
    assert "drop" not in records.new_row(row, 0)
    assert records.new_row(row, 0).isascii()


def test_a_condition_fences_each_id_by_its_own_token() -> None:
    one, two = new_token(), new_token()
    found = records.current([Key(ROW.id, one), Key(str(uuid.uuid4()), two)])
    assert f"token = x'{one.hex()}' and id in (x'{uuid.UUID(ROW.id).hex}')" in found


def test_locks_are_taken_in_the_order_of_the_primary_key() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - a failure must be repeatable
    ids = [random.Random(seed + n).randbytes(16) for n in range(50)]
    assert records.raw_ids(ids).split(",") == sorted(records.raw_ids(ids).split(","))


def test_named_locks_fit_and_do_not_collide() -> None:
    names = {
        records.lock_name(*parts) for parts in [("a", "bc", "d"), ("ab", "c", "d"), ("a", "b", "cd"), ("A", "bc", "d")]
    }
    assert len(names) == 4
    assert all(len(name) <= 64 and name == name.lower() for name in names)


def test_a_tenant_is_never_taken_for_a_worker() -> None:
    assert records.worker_digest("") == 0
    assert records.worker_digest("acme") != records.tenant_digest("acme")
