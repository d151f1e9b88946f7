"""The demo's App: one handler, as an application would write it."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

import hesape
from hesape.demo import figures, ledger
from hesape.demo.plan import COUNT

TRIES: Final = 3

app = hesape.App()


@app.handler(COUNT, tries=TRIES, backoff=0.3)
def count(job: hesape.Job, grant: hesape.Grant, file: str, pause_s: float = 0.0, stumbles: int = 0) -> None:
    """Count a file's words, and write the result and the end of the job in one transaction.

    It takes `pause_s`, so that there is something to watch, and fails in its first `stumbles` deliveries.
    """
    with ledger.open_in(app.configuration.folder) as book:
        ledger.note_start(book, job, os.getpid())
    time.sleep(pause_s)
    if job.attempts <= stumbles:
        message = f"{Path(file).name} lies on a server that didn't answer (as the demo arranged)"
        raise ConnectionError(message)
    found = figures.count(figures.read(Path(file)))
    with ledger.open_in(app.configuration.folder) as book:
        _finish(book, job, grant, Path(file).name, found)


def _finish(book: sqlite3.Connection, job: hesape.Job, grant: hesape.Grant, name: str, found: figures.Figures) -> None:
    """Both are written, or neither: a job that runs again can't leave two results."""
    with book:
        book.execute("BEGIN IMMEDIATE")
        ledger.note_result(book, job, grant.tenant, name, os.getpid(), found)
        job.delete(tx=book)
