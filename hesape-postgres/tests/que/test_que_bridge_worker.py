from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hesape
from hesape.errors import FailJob
from hesape.records import Counts
from hesape.worker.options import WorkerOptions
from hesape.worker.worker import Worker


@pytest.fixture
def app(tmp_path: Path, url: str) -> Iterator[hesape.App]:
    """An application whose hesape.toml names the table as the design says."""
    table = {"driver": "que", "url": url, "queue": "", "tenant": "acme", "action": "legacy.work"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
    (tmp_path / "hesape.toml").write_text("\n".join(["[connections.legacy]", *lines]))
    app = hesape.App(tmp_path / "hesape.toml")
    yield app
    app.close()


def drain(app: hesape.App, **options: Any) -> Any:
    chosen = WorkerOptions(**{"stop_when_empty": True, "sleep_s": 0.05, **options})
    return Worker(app.connection("legacy"), app.handlers, chosen).run()


def test_a_worker_drains_the_table_with_ordinary_handlers(app: hesape.App, plain: Any, conn: Any, held: Any) -> None:
    ran: list[Any] = []

    @app.handler("SendInvoice", action="legacy.work")
    def send(job: hesape.Job, invoice_id: int, copies: int = 1) -> None:
        ran.append((job.tenant, invoice_id, copies))

    @app.handler("Broken", action="legacy.work")
    def broken() -> None:
        message = "it broke"
        raise ValueError(message)

    @app.handler("Hopeless", action="legacy.work")
    def hopeless() -> None:
        raise FailJob

    @app.handler("Forbidden", action="another.action")
    def forbidden() -> None:
        ran.append("forbidden")

    plain.enqueue("SendInvoice", '[{"invoice_id": 42}]')
    plain.enqueue("SendInvoice", "[43, 2]")
    for name in ("Broken", "Hopeless", "Forbidden", "Unknown"):
        plain.enqueue(name)
    plain.enqueue("SendInvoice", '["not a number"]')
    drain(app)
    assert sorted(ran) == [("acme", 42, 1), ("acme", 43, 2)]
    query = "select job_class, error_count, last_error, extract(epoch from run_at - now())::float from que_jobs"
    [(name, count, error, left_s)] = conn.execute(query).fetchall()
    assert (name, count) == ("Broken", 1)
    assert error.startswith("ValueError: it broke")
    assert 0 < left_s <= 4
    parked = conn.execute("select job_class, split_part(last_error, ':', 1) from hesape_que_parked order by job_id")
    assert parked.fetchall() == [
        ("Hopeless", "FailJob"),
        ("Forbidden", "ActionMismatchError"),
        ("Unknown", "HandlerUnknownError"),
        ("SendInvoice", "ArgumentsMismatchError"),
    ]
    assert app.connection("legacy").counts() == Counts(0, 1, 0, 4)
    assert held() == 0


def test_a_job_is_parked_when_its_tries_are_used_up(app: hesape.App, plain: Any, conn: Any) -> None:
    @app.handler("Broken", action="legacy.work", tries=3)
    def broken() -> None:
        raise ZeroDivisionError

    plain.enqueue("Broken")
    conn.execute("update que_jobs set error_count = 2")
    drain(app)
    assert plain.rows() == []
    assert conn.execute("select error_count from hesape_que_parked").fetchall() == [(3,)]


def test_two_workers_and_another_program_share_2000_jobs(
    app: hesape.App, plain: Any, conn: Any, held: Any, url: str
) -> None:
    ran: list[int] = []

    @app.handler("Count", action="legacy.work")
    def count(number: int) -> None:
        ran.append(number)

    conn.execute(
        "insert into que_jobs (job_class, args) select 'Count', json_build_array(n) from generate_series(1, 2000) n"
    )
    other = hesape.App(app.configuration)
    other.handlers = app.handlers
    threads = [threading.Thread(target=drain, args=(one,)) for one in (app, other)]
    for thread in threads:
        thread.start()
    while (row := plain.lock()) is not None and len(ran) < 1500:
        ran.append(json.loads(row[5])[0])
        plain.destroy(row)
        plain.unlock(row)
    if row is not None:
        plain.unlock(row)
    for thread in threads:
        thread.join()
    other.close()
    drain(app)
    assert sorted(ran) == list(range(1, 2001))
    assert plain.rows() == []
    assert held() == 0
