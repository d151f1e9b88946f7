"""Settlements in the handler's own transaction: provisional until it commits (S4, S7)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hesape
from hesape.jobs import Job
from hesape.records import Counts

if TYPE_CHECKING:
    from worker.conftest import Shop


class Book:
    """The application's own table, in the database of the jobs."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with self.open() as book:
            book.execute("CREATE TABLE done (attempt INTEGER)")

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=5)

    def entries(self) -> list[int]:
        with self.open() as book:
            return [attempt for (attempt,) in book.execute("SELECT attempt FROM done ORDER BY rowid")]


@pytest.fixture
def book(shop: Shop, tmp_path: Path) -> Iterator[Book]:
    queue = hesape.connect(f"sqlite:///{tmp_path}/jobs.db")
    shop.__init__(queue.driver)  # type: ignore[misc]  # the same shop on another store
    queue.counts()
    yield Book(tmp_path / "jobs.db")
    shop.close()
    queue.close()


def settles(shop: Shop, book: Book, end: Callable[[sqlite3.Connection, Job], None]) -> list[float]:
    """A handler that writes and deletes its job in one transaction, which `end` ends."""
    ran: list[float] = []

    @shop.handler("write", tries=3, backoff=0)
    def write(job: Job) -> None:
        ran.append(time.monotonic())
        connection = book.open()
        try:
            connection.execute("INSERT INTO done VALUES (?)", (job.attempts,))
            job.delete(tx=connection)
            end(connection, job)
        finally:
            connection.close()

    return ran


def test_the_handlers_writes_and_the_jobs_end_commit_together(shop: Shop, book: Book) -> None:
    settles(shop, book, lambda connection, _: connection.commit())
    job = shop.push("write")
    shop.work()
    assert book.entries() == [1]
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert shop.kinds(job)[-2:] == ["processed", "attempted"]


def test_a_handler_that_raises_before_it_commits_is_retried_and_neither_is_kept(shop: Shop, book: Book) -> None:
    def end(connection: sqlite3.Connection, job: Job) -> None:
        if job.attempts == 1:
            connection.rollback()
            raise ValueError
        connection.commit()

    settles(shop, book, end)
    job = shop.push("write")
    shop.work()
    assert book.entries() == [2]
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert "released" in shop.kinds(job)


def test_a_handler_that_raises_after_it_committed_is_done(shop: Shop, book: Book) -> None:
    def end(connection: sqlite3.Connection, _: Job) -> None:
        connection.commit()
        raise ValueError

    settles(shop, book, end)
    job = shop.push("write")
    shop.work()
    assert book.entries() == [1]
    assert shop.queue.counts() == Counts(0, 0, 0, 0)
    assert shop.kinds(job)[-2:] == ["exception", "attempted"]


def test_a_handler_that_rolls_back_without_an_error_is_redelivered_at_the_end_of_its_lease(
    shop: Shop, book: Book
) -> None:
    def end(connection: sqlite3.Connection, job: Job) -> None:
        if job.attempts == 1:
            connection.rollback()
        else:
            connection.commit()

    ran = settles(shop, book, end)
    shop.push("write")
    shop.start(lease_s=1.5)
    shop.until(lambda: len(ran) == 2, within=8)
    assert ran[1] - ran[0] > 1
    shop.until(lambda: shop.queue.counts() == Counts(0, 0, 0, 0))
    assert book.entries() == [2]
