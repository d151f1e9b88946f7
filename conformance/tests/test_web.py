"""The example of the documentation, a site on Starlette, through HTTP and with a worker of its own."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

EXAMPLE = Path(__file__).parents[2] / "docs/examples/web"
MODULES = ("jobs", "web")
DEADLINE_S = 60


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module `web`, imported in a folder of its own."""
    for name in MODULES:
        shutil.copy(EXAMPLE / f"{name}.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    web = importlib.import_module("web")
    yield web
    web.app.close()
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def client(site: Any) -> Iterator[TestClient]:
    with TestClient(site.site) as client:
        yield client


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "hesape", "work", "--app", "jobs:app", "--sleep", "0.1"]
    with subprocess.Popen(command, cwd=tmp_path) as process:
        yield process
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def post(client: TestClient, number: int, session: str) -> tuple[int, Any]:
    answer = client.post(f"/invoices/{number}/send", headers={"Authorization": f"Bearer {session}"})
    return answer.status_code, answer.json() if "json" in answer.headers["content-type"] else None


def test_a_worker_runs_what_a_request_pushed_under_its_users_tenant_and_action(
    site: Any, client: TestClient, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    assert [post(client, 42, "anna's")[0], post(client, 43, "gus's")[0]] == [202, 202]
    sent, queue = tmp_path / "sent.txt", site.app.connection()
    deadline = time.monotonic() + DEADLINE_S
    while queue.counts().size:
        assert time.monotonic() < deadline, f"after {DEADLINE_S} s there are {queue.counts()}"
        time.sleep(0.05)
    assert sorted(sent.read_text(encoding="utf-8").splitlines()) == [
        "acme invoice.send: invoice 42, asked for by anna",
        "globex invoice.send: invoice 43, asked for by gus",
    ]
    assert queue.counts().failed == 0


def test_the_answer_names_the_stored_job(site: Any, client: TestClient) -> None:
    status, answer = post(client, 42, "anna's")
    [job] = site.app.connection().pop()
    assert (status, answer) == (202, {"job": job.id})
    assert (job.tenant, job.authorized_by, job.action, job.decode()) == ("acme", "anna", "invoice.send", {"number": 42})


@pytest.mark.parametrize(
    ("number", "session", "answer"),
    [
        pytest.param(42, "mallory's", (403, {"error": "forbidden"}), id="no clerk"),
        pytest.param(43, "anna's", (403, {"error": "forbidden"}), id="another tenant's"),
        pytest.param(42, "nobody's", (401, None), id="no session"),
    ],
)
def test_whom_the_policy_doesnt_allow_is_refused_and_nothing_is_stored(
    site: Any, client: TestClient, number: int, session: str, answer: tuple[int, Any]
) -> None:
    queue = site.app.connection()
    before = queue.counts()
    assert post(client, number, session) == answer
    assert queue.counts() == before
    assert queue.counts().size + queue.counts().failed == 0


def test_a_store_that_cant_be_reached_is_an_answer_too(site: Any, client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "hesape.db").mkdir()
    assert post(client, 42, "anna's") == (503, {"error": "try again later"})


def test_the_examples_own_tests_pass(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "web")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path / "web", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout
