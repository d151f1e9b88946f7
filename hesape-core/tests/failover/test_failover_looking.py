"""Looks, repairs and coordination through a failover connection, and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hesape
from hesape import retry
from hesape.errors import ConfigError, JobNotFoundError, NotFailedError, OutcomeUnknownError, StoreUnavailableError
from hesape.grants import system_grant
from hesape.jobs import Job
from hesape.middleware import without_overlapping
from hesape.records import Counts

if TYPE_CHECKING:
    from failover.conftest import Bench
    from hesape.drivers.memory.driver import MemoryDriver

READ = system_grant("hesape.failed.read", "acme")
RETRY = system_grant("hesape.failed.retry", "acme")
FORGET = system_grant("hesape.failed.forget", "acme")
UNKNOWN = "01900000-0000-7000-8000-000000000000"


def fail(bench: Bench, driver: MemoryDriver) -> str:
    """A job that failed in this store."""
    pushed = bench.push_to(driver, priority=-1)
    (job,) = bench.queue.pop()
    assert job.id == pushed.id
    job.fail("no")
    return job.id


@pytest.fixture
def failed(bench: Bench) -> list[str]:
    """Four failed jobs, oldest first, of both stores in turn."""
    return [fail(bench, driver) for driver in (bench.orders, bench.main) * 2]


def test_counts_add_up_and_queues_are_those_of_both(bench: Bench) -> None:
    bench.push_to(bench.orders)
    bench.push_to(bench.main)
    bench.push_to(bench.main, queue="high")
    fail(bench, bench.orders)
    assert bench.queue.counts() == Counts(2, 0, 0, 1)
    assert bench.queue.queues() == ["default", "high"]


def test_the_oldest_pending_is_that_of_both(bench: Bench) -> None:
    bench.push_to(bench.main)
    oldest = bench.queue.oldest_pending()
    bench.push_to(bench.orders)
    assert oldest is not None
    assert bench.queue.oldest_pending() == oldest


def test_numbers_of_a_part_are_no_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PATIENCE_S", 0.1)
    bench.down(bench.main)
    with pytest.raises(StoreUnavailableError) as caught:
        bench.queue.counts()
    assert "connection main" in "".join(caught.value.__notes__)


def test_failed_jobs_of_both_are_listed_newest_first_page_by_page(bench: Bench, failed: list[str]) -> None:
    first = bench.queue.failed(READ, limit=3)
    rest = bench.queue.failed(READ, limit=3, before=first[-1])
    assert [job.id for job in (*first, *rest)] == failed[::-1]


def test_each_failed_job_is_found_and_retried_where_it_is(bench: Bench, failed: list[str]) -> None:
    assert [bench.queue.find(READ, job_id).id for job_id in failed] == failed
    bench.queue.retry(RETRY, failed[:3])
    assert sorted(job.id for job in bench.queue.pop(n=9)) == sorted(failed[:3])
    assert bench.ids(bench.orders) | bench.ids(bench.main) == set(failed)


def test_an_id_that_is_nowhere_or_not_failed_changes_nothing(bench: Bench, failed: list[str]) -> None:
    live = bench.push_to(bench.main)
    with pytest.raises(JobNotFoundError) as unknown:
        bench.queue.retry(RETRY, [*failed, UNKNOWN])
    with pytest.raises(NotFailedError) as unfailed:
        bench.queue.forget(FORGET, [failed[0], live.id])
    assert (unknown.value.index, unfailed.value.index) == (4, 1)
    assert bench.queue.counts().failed == 4


def test_a_foreign_tenants_job_is_not_found(bench: Bench, failed: list[str]) -> None:
    with pytest.raises(JobNotFoundError):
        bench.queue.find(system_grant("hesape.failed.read", "globex"), failed[1])


def test_what_may_be_in_a_store_that_is_away_is_not_called_unknown(
    bench: Bench, failed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE_S", 0.1)
    bench.orders.refusals["find"] = []
    monkeypatch.setattr(bench.orders, "find", _away)
    with pytest.raises(StoreUnavailableError):
        bench.queue.find(READ, failed[0])
    assert bench.queue.find(READ, failed[1]).id == failed[1]


def _away(*_: object) -> object:
    raise StoreUnavailableError


def test_a_retry_that_reached_one_store_of_two_says_so(
    bench: Bench, failed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.main, "retry", _away)
    with pytest.raises(OutcomeUnknownError, match="1 of 2 stores"):
        bench.queue.retry(RETRY, failed)
    assert bench.queue.counts() == Counts(2, 0, 0, 2)


def test_forget_prune_clear_and_flush_reach_both(bench: Bench, failed: list[str]) -> None:
    assert bench.queue.forget(FORGET, failed[:2]) == 2
    assert bench.queue.operator().flush() == 2
    for driver in (bench.orders, bench.main):
        bench.push_to(driver)
    assert bench.queue.operator().clear("default") == 2
    assert bench.queue.counts() == Counts(0, 0, 0, 0)


def test_a_paused_queue_is_paused_in_both(bench: Bench) -> None:
    for driver in (bench.orders, bench.main):
        bench.push_to(driver)
    bench.queue.operator().pause("default")
    assert bench.queue.pop(n=5) == []
    bench.queue.operator().resume("default")
    assert len(bench.queue.pop(n=5)) == 2


def test_locks_counters_and_flags_live_in_the_first_store_even_while_it_is_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "PATIENCE_S", 0.1)
    lock = bench.queue.lock("row", 60)
    assert lock.take()
    assert bench.queue.counter("calls", 60).add() == 1
    bench.queue.flag("on").set("yes")
    assert bench.queue.flag("on").value() == "yes"
    assert len(bench.orders._opened().entries) == 3
    assert not bench.main._opened().entries
    bench.queue.flag("on").erase()
    assert lock.free()
    monkeypatch.setattr(bench.orders, "lock", _away)
    with pytest.raises(StoreUnavailableError):
        bench.queue.lock("row", 60).take()


def test_a_middleware_of_a_job_from_the_second_store_locks_in_the_first(bench: Bench) -> None:
    bench.push_to(bench.main)
    (job,) = bench.queue.pop()
    assert job.connection_name == "main"
    seen: list[int] = []
    without_overlapping()(job, lambda: seen.append(len(bench.orders._opened().entries)))
    assert seen == [1]


def test_migrating_takes_the_members_through_theirs(tmp_path: Path) -> None:
    queue = App(tmp_path).app.connection("safe")
    assert queue.driver.migrations() == []
    assert queue.driver.migrate() == [1]
    assert queue.driver.migrate() == []
    assert queue.driver.schema_version() == 0
    queue.close()


def test_a_sign_of_life_tells_of_each_member(bench: Bench) -> None:
    bench.down(bench.main)
    assert bench.driver.ping().startswith("orders: memory of one process")
    assert bench.driver.ping().endswith("; main: can't be reached (StoreUnavailableError)")
    assert abs(bench.driver.now() - bench.orders.now()) < 10_000_000


# Settings.


class App:
    """An application with a failover connection before two files."""

    def __init__(self, folder: Path, connections: str = '["orders", "main"]', more: str = "") -> None:
        lines = [
            'default = "safe"',
            f'[connections.safe]\ndriver = "failover"\nconnections = {connections}\n{more}',
            '[connections.orders]\nurl = "sqlite:///orders.db"',
            '[connections.main]\nurl = "sqlite:///main.db"',
            '[connections.nothing]\ndriver = "null"',
            '[connections.circle]\ndriver = "failover"\nconnections = ["safe", "main"]',
        ]
        (folder / "hesape.toml").write_text("\n".join(lines))
        self.app = hesape.App(folder)


def test_members_are_connections_of_the_same_configuration(tmp_path: Path) -> None:
    app = App(tmp_path).app
    grant = system_grant("work", "acme")
    app.connection().push(grant, Job.new(grant, "work"))
    assert app.connection("orders").counts().pending == 1
    (job,) = app.connection().pop()
    job.delete()
    assert job.connection_name == "orders"
    assert app.connection().driver.spec.facts == app.connection("main").driver.spec.facts
    assert hesape.Capability.TRANSACTIONS not in app.connection().driver.spec.capabilities
    app.close()


@pytest.mark.parametrize(
    ("connections", "more", "what"),
    [
        ("[]", "", "at least two different names"),
        ('["orders"]', "", "at least two different names"),
        ('["orders", "orders"]', "", "at least two different names"),
        ('"orders"', "", "expected a list of names"),
        ("[1, 2]", "", "expected a list of names"),
        ('["orders", "Main!"]', "", "connections: connection 'Main!'"),
        ('["orders", "mian"]', "", "no connection named 'mian'; did you mean 'main'"),
        ('["orders", "nothing"]', "", "its member 'nothing' is a 'null', which keeps nothing"),
        ('["orders", "circle"]', "", "leads back to itself: safe -> circle -> safe"),
        ('["orders", "main"]', "retries = 3", "has no option 'retries'"),
        ('["orders", "main"]', 'url = "failover://x"', "has no url"),
    ],
)
def test_settings_that_lead_nowhere_are_refused(tmp_path: Path, connections: str, more: str, what: str) -> None:
    app = App(tmp_path, connections, more).app
    with pytest.raises(ConfigError, match=what):
        app.connection()
    app.close()
