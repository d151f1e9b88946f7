from __future__ import annotations

import pytest

import hesape
from hesape.grants import Grant
from hesape.queue import Queue
from hesape.records import Claim, Key, new_token
from hesape_mysql.driver import MySQLDriver
from hesape_mysql.statements import UNLOCKED

MINUTE_US = 60_000_000


def test_a_lease_that_runs_out_while_it_is_extended_is_extended_or_lost_and_never_both(
    queue: Queue, driver: MySQLDriver, grant: Grant, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.bulk(grant, [hesape.Job.new(grant, "n") for _ in range(2)])
    keys = []
    for lease_us in (1_000_000, MINUTE_US):
        claim = Claim(("default",), 1, lease_us, new_token(), "", ())
        keys += [Key(row.id, claim.token) for row in driver.reserve(claim).rows]
    slow = driver._statements[UNLOCKED].replace(" for update", " and sleep(0.6) = 0 for update")
    monkeypatch.setitem(driver._statements._texts, UNLOCKED, slow)  # a lease ends inside the call
    deadlines = driver._extend(keys, MINUTE_US)
    assert None not in deadlines
    assert driver._extend(keys, 0) == deadlines
    assert driver.reserve(Claim(("default",), 1, MINUTE_US, new_token(), "", ())).rows == []
