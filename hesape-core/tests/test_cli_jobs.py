from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hesape as library
from hesape import Job, system_grant

Hesape = Callable[..., Any]
GRANT = ("--tenant", "acme", "--action", "invoice.send")


@pytest.fixture
def queue(hesape: Hesape, tmp_path: Path) -> library.Queue:
    """The queue that the command line works on."""
    return library.connect(f"sqlite:///{tmp_path / 'hesape.db'}")


@pytest.fixture
def failed(queue: library.Queue) -> Callable[..., str]:
    """Push a job and park it; its id."""

    def park(name: str = "invoice.send", tenant: str = "acme", cause: str = "OSError: no\n\ntrace") -> str:
        grant = system_grant("invoice.send", tenant)
        queue.push(grant, Job.new(grant, name, {"n": 1}))
        (job,) = queue.pop()
        job.fail(cause)
        return job.id

    return park


# push


def test_push_stores_the_payload_as_it_is_given_under_a_grant_of_the_system(
    hesape: Hesape, queue: library.Queue
) -> None:
    ran = hesape("push", "invoice.send", '{"a": 1.0, "b":"ü"}', *GRANT, "--queue", "high", "--priority", "3")
    (job,) = queue.pop("high")
    assert ran == (0, f"pushed {job.id} invoice.send for acme on default:high\n", "")
    assert job.payload == '{"a": 1.0, "b":"ü"}'.encode()
    assert (job.tenant, job.action, job.authorized_by, job.priority) == ("acme", "invoice.send", "system", 3)


def test_push_answers_with_json(hesape: Hesape) -> None:
    facts = hesape("push", "invoice.send", *GRANT, "--delay", "1.5m", "--json").json
    job_id = facts.pop("id")
    assert library.Job.new(system_grant("a", "b"), "n", id=job_id).id == job_id
    assert facts == {
        "name": "invoice.send",
        "tenant": "acme",
        "action": "invoice.send",
        "connection": "default",
        "queue": "default",
        "priority": 100,
        "delay": 90.0,
    }


def test_a_delayed_push_waits(hesape: Hesape, queue: library.Queue) -> None:
    hesape("push", "x", *GRANT, "--delay", "5m")
    assert queue.counts().delayed == 1


def test_push_reads_standard_input(hesape: Hesape, queue: library.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"big": true}')))
    assert hesape("push", "x", "-", *GRANT).code == 0
    assert queue.pop()[0].decode() == {"big": True}


def test_pushing_the_same_id_again_stores_nothing_new(hesape: Hesape, queue: library.Queue) -> None:
    again = ("push", "x", "{}", *GRANT, "--id", "0190a5c8-1f2e-7abc-8def-0123456789ab")
    assert (hesape(*again).code, hesape(*again).code, queue.counts().size) == (0, 0, 1)
    other = hesape(*again[:2], '{"n": 1}', *again[3:])
    assert (other.code, other.err.partition(":")[0]) == (1, "error[duplicate-job]")


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("x", "{"), "payload-invalid"),
        (("x", '{"a": NaN}'), "payload-invalid"),
        (("x", '{"a":1,"a":2}'), "payload-invalid"),
        (("x", "\udcff"), "payload-invalid"),
        (("x", '"' + "x" * 32_767 + '"'), "payload-too-large"),
        (("",), "no-name"),
        (("a\nb",), "name-invalid"),
        (("x", "{}", "--queue", "a b"), "name-invalid"),
        (("x", "{}", "--queue", "q'; drop table hesape_jobs; --"), "name-invalid"),
        (("x", "{}", "--queue", "q\\%_"), "name-invalid"),
        (("x", "{}", "--queue", "é" * 150), "name-invalid"),
        (("x", "{}", "--queue", "q" * 255), "name-invalid"),
        (("x", "{}", "--priority", "40000"), "priority-invalid"),
        (("x", "{}", "--id", "7"), "id-invalid"),
        (("x", "{}", "--tenant", "A/B"), "name-invalid"),
        (("x", "{}", "--action", "a b"), "name-invalid"),
    ],
    ids=range(16),
)
def test_what_no_store_may_accept_is_refused_and_nothing_is_stored(
    hesape: Hesape, queue: library.Queue, argv: tuple[str, ...], code: str
) -> None:
    ran = hesape("push", *GRANT, *argv)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error[{code}]: ")
    assert queue.queues() == []


@pytest.mark.parametrize("name", ["a.b_c/d:e-F", "q" * 128, "default"])
def test_every_queue_name_that_is_allowed_works_in_every_command(hesape: Hesape, name: str) -> None:
    assert hesape("push", "x", *GRANT, "--queue", f":{name}").code == 0
    assert hesape("pause", f":{name}").code == 0
    assert [row["queue"] for row in hesape("queues", "--json").json["queues"]] == [name]
    assert hesape("clear", f":{name}", "--force", "--json").json["removed"] == 1


# status, queues, pause, resume, clear


def test_queues_are_listed_with_their_numbers_and_whether_they_are_paused(
    hesape: Hesape, failed: Callable[..., str]
) -> None:
    failed()
    hesape("push", "x", *GRANT)
    hesape("push", "x", *GRANT, "--delay", "1h")
    assert hesape("pause", "low") == (0, "paused default:low\n", "")
    rows = {row["queue"]: row for row in hesape("queues", "--json").json["queues"]}
    assert list(rows) == ["default", "low"]
    assert rows["default"].pop("oldest_pending").endswith("+00:00")
    assert rows["default"] == {
        "queue": "default",
        "pending": 1,
        "delayed": 1,
        "reserved": 0,
        "failed": 1,
        "size": 2,
        "paused": False,
    }
    assert rows["low"]["paused"] is True
    shown = hesape("queues").out.splitlines()
    assert [line.split() for line in shown if "low" in line] == [["low", "0", "0", "0", "0", "paused"]]
    assert hesape("resume", "low", "--json").json == {"connection": "default", "queue": "low", "paused": False}
    assert [row["queue"] for row in hesape("queues", "--json").json["queues"]] == ["default"]


def test_status_shows_the_store_and_the_totals(hesape: Hesape, failed: Callable[..., str]) -> None:
    failed()
    hesape("push", "x", *GRANT, "--queue", "high")
    facts = hesape("status", "--json").json
    assert (facts["connection"], facts["driver"], facts["store"].split()[0]) == ("default", "sqlite", "SQLite")
    assert (facts["pending"], facts["failed"], facts["workers"], len(facts["queues"])) == (1, 1, 0, 2)
    assert "1 pending, 0 delayed, 0 reserved, 1 failed" in hesape("status").out


def test_looking_changes_nothing(hesape: Hesape, queue: library.Queue) -> None:
    hesape("push", "x", *GRANT, "--queue", "hesape.look")
    hesape("status")
    (job,) = queue.pop("hesape.look")
    assert job.attempts == 1


def test_clear_leaves_failed_jobs(hesape: Hesape, failed: Callable[..., str]) -> None:
    failed()
    hesape("push", "x", *GRANT)
    assert hesape("clear", "default", "--force") == (0, "removed 1 jobs from default:default\n", "")
    assert hesape("status", "--json").json["failed"] == 1


def test_workers_are_listed_with_what_they_hold(hesape: Hesape, queue: library.Queue) -> None:
    assert hesape("workers") == (0, "no workers\n", "")
    queue.driver.beat("machine-1", 60_000_000, 60_000_000)
    (one,) = hesape("workers", "--json").json["workers"]
    assert (one["worker"], one["held"], one["since"]) == ("machine-1", 0, None)
    assert "machine-1" in hesape("workers").out
    queue.driver.retire("machine-1")
    queue.close()


# failed


def test_failed_jobs_of_every_tenant_are_listed_newest_first_page_by_page(
    hesape: Hesape, failed: Callable[..., str]
) -> None:
    ids = [failed(tenant=tenant) for tenant in ("acme", "other", "acme")]
    page = hesape("failed", "list", "--limit", "2", "--json").json
    assert [job["id"] for job in page["jobs"]] == [ids[2], ids[1]]
    rest = hesape("failed", "list", "--limit", "2", "--before", page["next"], "--json").json
    assert [(job["id"], job["tenant"]) for job in rest["jobs"]] == [(ids[0], "acme")]
    assert rest["next"] is None
    shown = hesape("failed", "list", "--limit", "2").out
    assert shown.count("OSError: no") == 2
    assert f"more: --before {page['next']}" in shown


def test_one_failed_job_is_shown_with_its_payload_and_its_error(hesape: Hesape, failed: Callable[..., str]) -> None:
    job_id = failed()
    facts = hesape("failed", "show", job_id, "--json").json
    assert json.loads(facts["payload"]) == {"n": 1}
    assert (facts["action"], facts["attempts"], facts["last_error"]) == ("invoice.send", 1, "OSError: no\n\ntrace")
    shown = hesape("failed", "show", job_id).out
    assert 'payload        {"n":1}\n' in shown
    assert shown.endswith("\nOSError: no\n\ntrace\n")


def test_what_a_terminal_would_obey_is_shown_and_not_sent(hesape: Hesape, failed: Callable[..., str]) -> None:
    job_id = failed(cause="\x1b[31mred\x07 [bold]x[/bold]")
    for argv in (("failed", "list"), ("failed", "show", job_id)):
        shown = hesape(*argv).out
        assert "\\x1b[31mred\\x07 [bold]x[/bold]" in shown
        assert "\x1b" not in shown


def test_a_live_and_an_unknown_job_have_errors_of_their_own(hesape: Hesape) -> None:
    live = hesape("push", "x", *GRANT, "--json").json["id"]
    assert hesape("failed", "show", live).err.startswith("error[not-failed]: ")
    unknown = "0190a5c8-1f2e-7abc-8def-0123456789ab"
    assert hesape("failed", "retry", unknown).err.startswith("error[job-not-found]: ")


def test_retry_puts_jobs_back_and_ids_are_all_or_nothing(
    hesape: Hesape, queue: library.Queue, failed: Callable[..., str]
) -> None:
    ids = [failed(), failed()]
    unknown = "0190a5c8-1f2e-7abc-8def-0123456789ab"
    assert hesape("failed", "retry", ids[0], unknown).code == 1
    assert queue.counts().failed == 2
    assert hesape("failed", "retry", *ids) == (0, "retried 2 jobs\n", "")
    assert sorted(job.id for job in queue.pop(n=5)) == sorted(ids)


def test_retry_all_takes_one_queue_or_every_one(
    hesape: Hesape, queue: library.Queue, failed: Callable[..., str]
) -> None:
    for _ in range(3):
        failed()
    assert hesape("failed", "retry", "--all", "--queue", "other", "--json").json == {"retried": 0}
    assert hesape("failed", "retry", "--all", "--json").json == {"retried": 3}
    assert (queue.counts().failed, queue.counts().pending) == (0, 3)


def test_forget_flush_and_prune_remove_failed_jobs_and_say_how_many(hesape: Hesape, failed: Callable[..., str]) -> None:
    ids = [failed() for _ in range(4)]
    assert hesape("failed", "forget", ids[0], "--force") == (0, "removed 1 failed jobs\n", "")
    assert hesape("failed", "prune", "--older-than", "1h", "--force", "--json").json == {"removed": 0}
    assert hesape("failed", "prune", "--older-than", "0", "--force", "--json").json == {"removed": 3}
    failed()
    assert hesape("failed", "flush", "--force", "--json").json == {"removed": 1}
    assert hesape("failed", "list") == (0, "no failed jobs\n", "")
