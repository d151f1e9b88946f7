from __future__ import annotations

from hesape_mysql.driver import MySQLDriver


def test_a_counter_that_ends_while_it_is_incremented_has_still_counted(driver: MySQLDriver) -> None:
    before = driver.now()
    value, end_us = driver.increment("visits", 3, 1)  # over before any second statement
    assert value == 3
    assert before < end_us <= driver.now()
    assert driver.increment("visits", 0, 1_000_000)[0] == 0
