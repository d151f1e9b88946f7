"""The file removed or replaced under an open connection: what is pushed then is in the file of that name (E1, L6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import hesape
from hesape import Job, Queue, system_grant

GRANT = system_grant("act", "acme")


def push(queue: Queue) -> str:
    return queue.push(GRANT, Job.new(GRANT, "act", {})).id


def remove(file: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)


def replace(file: Path) -> None:
    with hesape.connect(f"sqlite:///{file}.new") as other:
        other.counts()
    remove(file)
    file.with_name(f"{file.name}.new").rename(file)


def remove_and_let_another_begin_anew(file: Path) -> None:
    remove(file)
    with hesape.connect(f"sqlite:///{file}") as other:
        other.counts()


@pytest.mark.parametrize("happens", [remove, replace, remove_and_let_another_begin_anew])
def test_a_push_after_it_is_seen_by_others_and_survives_them(tmp_path: Path, happens: Callable[[Path], None]) -> None:
    file = tmp_path / "jobs.db"
    with hesape.connect(f"sqlite:///{file}") as queue, hesape.connect(f"sqlite:///{file}") as waiting:
        push(queue)
        assert waiting.counts().pending == 1
        happens(file)
        new = [push(queue), push(queue)]
        assert waiting.counts().pending == 2
    with hesape.connect(f"sqlite:///{file}") as other:
        assert [job.id for job in other.pop(n=9)] == new


def test_looking_after_it_shows_the_new_file(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    with hesape.connect(f"sqlite:///{file}") as queue:
        push(queue)
        assert queue.counts().pending == 1
        remove(file)
        assert queue.counts().pending == 0
        assert queue.queues() == []
