from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

import hesape
from hesape_conformance.history import Kind, Recorder, Verdict, check, content_of, read, replay

if TYPE_CHECKING:
    from pathlib import Path

A, B = 101, 102
"""Two worker processes; 100 is A's supervisor."""


def event(at: float, what: str, pid: int = A, attempt: int = 1, **facts: Any) -> dict[str, Any]:
    job = {} if what in {"push", "pushed", "starting"} else {"job": "j", "attempt": attempt}
    return {"at": at, "what": what, "pid": pid, **job, **facts}


def pushed(at: float = 1.0, outcome: str = "ok", **facts: Any) -> list[dict[str, Any]]:
    call = f"call at {at}"
    return [
        event(at, "push", 7, call=call, jobs={"j": "content"}, **facts),
        event(at + 0.1, "pushed", 7, call=call, outcome=outcome),
    ]


def had(at: float, pid: int = A, attempt: int = 1, content: str = "content") -> list[dict[str, Any]]:
    return [event(at, "popped", pid, attempt), event(at + 0.1, "started", pid, attempt, content=content)]


def settled(
    at: float, pid: int = A, attempt: int = 1, outcome: str = "processed", how: str = "delete", delay_s: float = 0.0
) -> list[dict[str, Any]]:
    return [
        event(at, "settling", pid, attempt, how=how, delay_s=delay_s),
        event(at + 0.1, "settled", pid, attempt, outcome=outcome),
    ]


def judged(*parts: list[dict[str, Any]], left: dict[str, str] | None = None) -> Verdict:
    workers = [event(0.0, "starting", pid, lease_s=4.0, grace_s=5.0, parent=pid - 1) for pid in (A, B)]
    leaving = [{"at": 1000.0, "what": "stopping", "pid": pid} for pid in (A, B)]
    return check(replay([*workers, *leaving, *(event for part in parts for event in part)]), left or {})


def kinds(verdict: Verdict) -> list[Kind]:
    return [violation.kind for violation in verdict.violations]


def alone(what: str, at: float, pid: int = A) -> list[dict[str, Any]]:
    return [{"at": at, "what": what, "pid": pid}]


# Good histories.


def test_a_job_that_is_pushed_delivered_and_deleted_is_no_fault() -> None:
    verdict = judged(pushed(), had(2), settled(3))
    assert kinds(verdict) == []
    assert (verdict.pushed, verdict.delivered, verdict.duplicates.total()) == (1, 1, 0)


def test_a_release_and_the_delivery_after_its_delay_are_no_fault_and_no_duplicate() -> None:
    again = settled(3, outcome="released", how="release", delay_s=2.0)
    verdict = judged(pushed(), had(2), again, had(5.1, B, 2), settled(6, B, 2))
    assert kinds(verdict) == []
    assert (verdict.put_back, verdict.duplicates.total()) == (1, 0)


def test_a_job_that_its_handler_couldnt_delete_and_that_its_worker_put_back_may_run_again() -> None:
    verdict = judged(pushed(), had(2), settled(3, outcome="released"), had(4, B, 2), settled(5, B, 2))
    assert kinds(verdict) == []


def test_a_parked_job_on_the_failed_list_is_no_fault() -> None:
    assert kinds(judged(pushed(), had(2), settled(3, outcome="failed", how="park"), left={"j": "failed"})) == []


def test_the_job_of_a_killed_worker_runs_again_and_the_time_is_taken() -> None:
    verdict = judged(pushed(), had(2), alone("killed", 3), had(3.5, B, 2), settled(4, B, 2))
    assert kinds(verdict) == []
    assert verdict.duplicates == {"killed": 1}
    assert (verdict.kills_that_hit, verdict.redelivered_s) == (1, [0.5])


def test_a_kill_between_two_jobs_hits_none() -> None:
    assert judged(pushed(), had(2), settled(3), alone("killed", 5)).kills_that_hit == 0


def test_a_frozen_workers_job_runs_elsewhere_and_its_late_settlement_is_refused() -> None:
    frozen = [*alone("stopped", 3), *alone("continued", 9)]
    verdict = judged(pushed(), had(2), frozen, had(7, B, 2), settled(8, B, 2), settled(9.1, outcome="lost"))
    assert kinds(verdict) == []
    assert verdict.duplicates == {"frozen": 1}
    assert verdict.stale_attempts == 1


def test_a_job_may_run_again_when_the_store_was_away_during_its_delivery() -> None:
    away = [event(2.5, "away", why="outage"), event(3.5, "back")]
    verdict = judged(pushed(), had(2), away, had(4, B, 2), settled(5, B, 2), settled(4.5, outcome="lost"))
    assert kinds(verdict) == []
    assert verdict.duplicates == {"outage": 1}


def test_a_job_may_run_again_when_its_workers_grace_is_over() -> None:
    verdict = judged(pushed(), had(2), alone("asked", 3, 100), had(8, B, 2), settled(9, B, 2))
    assert kinds(verdict) == []
    assert verdict.duplicates == {"grace over": 1}


def test_what_was_held_and_never_started_may_go_to_another() -> None:
    verdict = judged(pushed(), [event(2, "popped")], had(3, B), settled(4, B))
    assert kinds(verdict) == []
    assert verdict.duplicates.total() == 0


def test_a_repeated_push_of_unknown_outcome_may_run_the_job_again() -> None:
    verdict = judged(pushed(1, "unknown"), had(2), settled(3), pushed(4), had(5, B), settled(6, B))
    assert kinds(verdict) == []
    assert verdict.duplicates == {"push repeated": 1}


def test_an_unsure_deletion_that_is_repeated_may_find_the_job_gone() -> None:
    away = [event(2.5, "away"), event(8.5, "back")]
    ours = [event(3, "settling", how="delete"), event(9, "settled", outcome="processed")]
    assert kinds(judged(pushed(), had(2), away, ours, had(7, B, 2), settled(8, B, 2))) == []


def test_a_push_of_unknown_outcome_may_have_stored_nothing() -> None:
    verdict = judged(pushed(outcome="unknown"))
    assert kinds(verdict) == []
    assert verdict.unknown == 1


def test_a_pusher_that_died_in_its_call_leaves_an_unknown_outcome() -> None:
    assert judged(pushed()[:1], had(2), settled(3)).unknown == 1


def test_troubles_may_overlap_and_end_in_any_order() -> None:
    first: dict[str, Any] = {"why": "outage"}
    second: dict[str, Any] = {"why": "server killed"}
    events = [event(1, "away", **first), event(2, "away", **second), event(3, "cut"), event(4, "back", **first)]
    found = replay(events).troubles
    assert [(one.what, one.end) for one in found] == [("outage", 4), ("server killed", inf), ("cut", 3)]


# Bad histories, one fault each.


def test_an_accepted_job_that_is_never_delivered_is_lost() -> None:
    assert kinds(judged(pushed())) == [Kind.LOST]


def test_a_job_that_no_handler_finished_and_that_is_gone_is_lost() -> None:
    assert kinds(judged(pushed(), had(2), alone("killed", 3))) == [Kind.LOST]


def test_a_parked_job_that_isnt_on_the_failed_list_is_lost() -> None:
    assert kinds(judged(pushed(), had(2), settled(3, outcome="failed", how="park"))) == [Kind.LOST]


def test_a_job_that_nobody_pushed_is_invented() -> None:
    assert kinds(judged(had(2), settled(3))) == [Kind.INVENTED]


def test_a_job_whose_push_was_refused_is_invented() -> None:
    assert kinds(judged(pushed(outcome="refused"), had(2), settled(3))) == [Kind.INVENTED]


def test_other_content_is_altered() -> None:
    assert kinds(judged(pushed(), had(2, content="other"), settled(3))) == [Kind.ALTERED]


def test_a_second_delivery_while_the_first_runs_is_double_leased() -> None:
    assert kinds(judged(pushed(), had(2), had(3, B, 2), settled(4, B, 2), settled(5, outcome="lost"))) == [
        Kind.DOUBLE_LEASED
    ]


def test_a_prefetched_job_that_starts_after_another_got_it_is_double_leased() -> None:
    late = [event(2, "popped"), event(6, "started", content="content")]
    assert kinds(judged(pushed(), late, had(3, B, 2), settled(4, B, 2), settled(7, outcome="lost"))) == [
        Kind.DOUBLE_LEASED
    ]


@pytest.mark.parametrize("what", ["killed", "asked"])
def test_what_comes_after_the_second_delivery_is_no_reason_for_it(what: str) -> None:
    verdict = judged(pushed(), had(2), had(3, B, 2), alone(what, 3.5), settled(4, B, 2))
    assert Kind.DOUBLE_LEASED in kinds(verdict)


def test_a_short_stall_is_no_reason() -> None:
    stall = [*alone("stopped", 2.5), *alone("continued", 3.5)]
    assert kinds(judged(pushed(), had(2), stall, had(3.2, B, 2), settled(4, B, 2), settled(5, outcome="lost"))) == [
        Kind.DOUBLE_LEASED
    ]


def test_a_delivery_after_a_settlement_that_was_refused_without_a_reason_is_early() -> None:
    assert kinds(judged(pushed(), had(2), settled(3, outcome="lost"), had(4, B, 2), settled(5, B, 2))) == [Kind.EARLY]


def test_a_delivery_before_its_due_time_is_early() -> None:
    assert kinds(judged(pushed(delay_s=5.0), had(5.5), settled(6))) == [Kind.EARLY]


def test_a_delivery_before_the_end_of_its_release_is_early() -> None:
    again = settled(3, outcome="released", how="release", delay_s=2.0)
    assert kinds(judged(pushed(), had(2), again, had(4, B, 2), settled(5, B, 2))) == [Kind.EARLY]


def test_a_delivery_after_an_accepted_deletion_is_resurrected() -> None:
    assert kinds(judged(pushed(), had(2), settled(3), had(4, B, 2), settled(5, B, 2))) == [Kind.RESURRECTED]


def test_a_job_in_the_store_after_an_accepted_deletion_is_resurrected() -> None:
    assert kinds(judged(pushed(), had(2), settled(3), left={"j": "ready"})) == [Kind.RESURRECTED]


def test_a_deletion_that_is_accepted_though_another_worker_has_the_job_is_stale() -> None:
    frozen = [*alone("stopped", 3), *alone("continued", 9)]
    verdict = judged(pushed(), had(2), frozen, had(8, B, 2), settled(9.1), settled(10, B, 2, "lost"))
    assert kinds(verdict) == [Kind.STALE]


def test_a_release_that_is_accepted_though_another_worker_has_the_job_is_stale() -> None:
    frozen = [*alone("stopped", 3), *alone("continued", 9)]
    late = settled(9.1, outcome="released", how="release")
    verdict = judged(pushed(), had(2), frozen, had(8, B, 2), late, settled(10, B, 2))
    assert kinds(verdict) == [Kind.STALE]


def test_a_job_that_still_waits_at_the_end_is_left_behind() -> None:
    assert kinds(judged(pushed(), left={"j": "scheduled"})) == [Kind.LEFT]


def test_a_job_on_the_failed_list_that_no_handler_put_there_is_parked() -> None:
    assert kinds(judged(pushed(), had(2), alone("killed", 3), left={"j": "failed"})) == [Kind.PARKED]


def test_a_worker_that_ends_without_a_word_died() -> None:
    assert kinds(check(replay([event(0.0, "starting", A)]), {})) == [Kind.DIED]


# Recording.


def test_what_is_recorded_is_read_in_the_order_of_the_clock(tmp_path: Path) -> None:
    one, other = Recorder(tmp_path, "one"), Recorder(tmp_path, "other")
    one.note("push", call=1, jobs={"j": "content"}, delay_s=0.5)
    other.note("popped", job="j", attempt=1)
    one.note("pushed", call=1, outcome="ok")
    other.note("started", job="j", attempt=1, content="content")
    one.close()
    other.close()
    found = read(tmp_path)
    assert (found.pushes["j"].delay_s, found.pushes["j"].accepted) == (0.5, True)
    [delivery] = found.deliveries["j"]
    assert found.pushes["j"].calls[0].invoked < delivery.popped < delivery.started
    assert found.pushes["j"].calls[0].returned < delivery.started


def test_a_line_that_its_writer_couldnt_finish_is_left_out(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "one")
    recorder.note("popped", job="j", attempt=1)
    recorder.close()
    [path] = tmp_path.iterdir()
    path.write_text(path.read_text() + '{"at": 5.0, "wh')
    assert len(read(tmp_path).deliveries["j"]) == 1


def test_the_content_covers_everything_that_the_pusher_decided() -> None:
    def job(tenant: str = "acme", name: str = "send", payload: object = None, **more: Any) -> hesape.Job:
        return hesape.Job.new(hesape.system_grant("invoice.send", tenant), name, payload, **more)

    others = [job("other"), job(name="other"), job(payload={"n": 1}), job(queue="other"), job(priority=3)]
    assert len({content_of(one) for one in [job(), *others]}) == 6
    assert content_of(job()) == content_of(job())


def test_what_a_frozen_worker_had_before_it_noted_it_counts_from_its_question() -> None:
    before = [{"at": 2.0, "what": "asking", "pid": A}, *alone("stopped", 2.5), *alone("continued", 9)]
    verdict = judged(pushed(), before, had(7, B, 2), settled(8, B, 2), had(9.1), settled(9.5, outcome="lost"))
    assert kinds(verdict) == []
    assert verdict.stale_attempts == 1


def test_a_lower_attempt_is_no_excuse_when_its_worker_asked_after_the_end() -> None:
    asking = [{"at": 9.0, "what": "asking", "pid": A}]
    verdict = judged(pushed(), had(7, B, 2), settled(8, B, 2), asking, had(9.1), settled(9.5))
    assert kinds(verdict) == [Kind.RESURRECTED]
