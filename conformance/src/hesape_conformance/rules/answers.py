"""N4: the same calls get the same answers on every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hesape.jobs import Job, key_of
from hesape_conformance.catalogue import rule
from hesape_conformance.trial import FORGET, OTHER_TENANT, READ, RETRY, attributes

if TYPE_CHECKING:
    from collections.abc import Callable

    from hesape_conformance.trial import Trial


class Play:
    """One fixed story, told to a store; what it answers is written down in words that name no id and no time."""

    def __init__(self, trial: Trial) -> None:
        """Begin with an empty store."""
        self.trial = trial
        self.answers: list[str] = []
        self.jobs: list[Job] = []

    def tell(self, what: str, call: Callable[[], Any]) -> Any:
        """Make a call and write its answer down."""
        try:
            found = call()
        except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
            self.answers.append(f"{what}: {type(error).__name__}")
            return None
        self.answers.append(f"{what}: {self._said(found)}")
        return found

    def _said(self, found: Any) -> str:
        if isinstance(found, Job):
            return f"{found.payload.decode()} try {found.attempts}"
        if isinstance(found, list):
            return "[" + ", ".join(self._said(each) for each in found) + "]"
        if hasattr(found, "last_error") and hasattr(found, "payload"):
            return f"{found.payload.decode()} {found.last_error} of {found.tenant}"
        return str(found)


def perform(trial: Trial) -> list[str]:
    """Tell the story."""
    play, queue, operator, grant = Play(trial), trial.queue, trial.queue.operator(), trial.grant
    tell = play.tell
    first = trial.job({"n": 1})
    tell("push", lambda: queue.push(grant(), first))
    tell("the same again", lambda: queue.push(grant(), trial.job({"n": 1}, id=first.id)))
    tell("another under its id", lambda: queue.push(grant(), trial.job({"n": 2}, id=first.id)))
    tell("for another tenant", lambda: trial.push({"n": 1}, tenant=OTHER_TENANT, id=first.id))
    tell("urgent", lambda: queue.push(grant(), trial.job({"n": 3}, priority=1)))
    tell("unique", lambda: trial.push({"n": 4}, attributes=attributes(unique_for=60, unique_key="k")))
    tell("unique again", lambda: trial.push({"n": 5}, attributes=attributes(unique_for=60, unique_key="k")))
    tell("delayed", lambda: queue.later(grant(), 60, trial.job({"n": 6})))
    tell("counts", queue.counts)
    jobs = tell("pop 2", lambda: queue.pop(n=2))
    tell("counts", queue.counts)
    tell("release", jobs[0].release)
    tell("release again", jobs[0].release)
    tell("delete what was released", jobs[0].delete)
    tell("fail", lambda: jobs[1].fail("Boom: it"))
    tell("list", lambda: queue.failed(grant(action=READ)))
    tell("list of another tenant", lambda: queue.failed(grant(OTHER_TENANT, READ)))
    tell("list under another action", lambda: queue.failed(grant()))
    tell("find", lambda: queue.find(grant(action=READ), jobs[1].id))
    tell("find a live one", lambda: queue.find(grant(action=READ), jobs[0].id))
    tell("find another's", lambda: queue.find(grant(OTHER_TENANT, READ), jobs[1].id))
    tell("retry", lambda: queue.retry(grant(action=RETRY), jobs[1].id))
    tell("retry again", lambda: queue.retry(grant(action=RETRY), jobs[1].id))
    tell("pause", lambda: operator.pause("default"))
    tell("pop of a paused queue", lambda: queue.pop(n=9))
    tell("queues", queue.queues)
    tell("resume", lambda: operator.resume("default"))
    jobs = tell("pop the rest", lambda: queue.pop(n=9))
    stale = [key_of(jobs[0])._replace(token=b"x" * 16)]
    tell("stale delete", lambda: len(trial.driver._delete(stale, repeat=False, tx=None)))  # noqa: SLF001
    tell("delete", jobs[0].delete)
    tell("clear", lambda: operator.clear("default"))
    tell("settle what was cleared", jobs[1].delete)
    tell("forget nobody", lambda: queue.forget(grant(action=FORGET), []))
    tell("flush", operator.flush)
    tell("counts", queue.counts)
    tell("oldest", queue.oldest_pending)
    tell("queues", queue.queues)
    return play.answers


EXPECTED = """\
push: {"n":1} try 0
the same again: {"n":1} try 0
another under its id: DuplicateJobError
for another tenant: DuplicateJobError
urgent: {"n":3} try 0
unique: {"n":4} try 0
unique again: AlreadyQueuedError
delayed: {"n":6} try 0
counts: Counts(pending=3, delayed=1, reserved=0, failed=0)
pop 2: [{"n":3} try 1, {"n":1} try 1]
counts: Counts(pending=1, delayed=1, reserved=2, failed=0)
release: None
release again: None
delete what was released: AlreadySettledError
fail: None
list: [{"n":1} Boom: it of acme]
list of another tenant: []
list under another action: ForbiddenError
find: {"n":1} Boom: it of acme
find a live one: NotFailedError
find another's: JobNotFoundError
retry: None
retry again: NotFailedError
pause: None
pop of a paused queue: []
queues: [default]
resume: None
pop the rest: [{"n":3} try 2, {"n":4} try 1, {"n":1} try 1]
stale delete: 1
delete: None
clear: 3
settle what was cleared: LeaseLostError
forget nobody: 0
flush: 0
counts: Counts(pending=0, delayed=0, reserved=0, failed=0)
oldest: None
queues: []"""


@rule("N4", "One story, told call by call, is answered word by word as on every other store")
def story(trial: Trial) -> None:
    assert perform(trial) == EXPECTED.splitlines()
