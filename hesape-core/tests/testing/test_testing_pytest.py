"""The fixtures for pytest: there when they are asked for, and no weight on anybody who doesn't."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

TESTS = """
import hesape

app = hesape.App()
grant = hesape.system_grant("mail", "acme")

@app.handler("mail")
def mail(number: int) -> None: ...

def test_a_queue_alone(fake_queue):
    fake_queue.push(grant, hesape.Job.new(grant, "mail"))
    fake_queue.assert_pushed("mail", times=1)

def test_in_an_apps_place(fake_app):
    queue = fake_app(app)
    mail.push(grant, number=1)
    queue.assert_pushed(mail, payload={"number": 1})
    queue.drain()
    queue.assert_settled(mail, "delete")

def test_the_next_one_finds_nothing(fake_app):
    fake_app(app).assert_nothing_pushed()

def test_a_failure_shows_the_tests_own_line(fake_queue):
    fake_queue.assert_pushed("mail")
"""


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_the_fixtures_are_there_when_a_conftest_asks_for_them(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["hesape.testing.pytest_plugin"]\n')
    (tmp_path / "test_it.py").write_text(TESTS)
    said = run(tmp_path)
    assert "3 passed" in said
    assert "1 failed" in said
    assert "fake_queue.py:" not in said, "the traceback ends at the assertion's call"
    assert not (tmp_path / "hesape.db").exists()


def test_nothing_is_loaded_unasked(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it():\n    import sys\n    assert 'hesape' not in sys.modules\n")
    assert "1 passed" in run(tmp_path)
    offered = importlib.metadata.distribution("hesape-core").entry_points
    assert not [point for point in offered if point.group == "pytest11"]
