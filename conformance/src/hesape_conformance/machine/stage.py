"""A store beside its model: makes one step at a time, and compares the two after each."""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape.envelope import Keys
from hesape.errors import HesapeError
from hesape.jobs import Job, attached
from hesape_conformance.expect import eventually
from hesape_conformance.machine.model import TAMPERED, Model, When, Where
from hesape_conformance.machine.story import Story
from hesape_conformance.trial import NAME, OTHER_TENANT, TENANT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hesape.queue import Queue
    from hesape_conformance.harness import RawRow
    from hesape_conformance.machine.model import Stored, Wanted
    from hesape_conformance.machine.story import Findings
    from hesape_conformance.trial import Trial

KEYS: Final = Keys(secrets={"machine": b"0123456789abcdef"}, sealing="machine")
"""Envelopes are sealed, so that each change to one is found (G8)."""
QUEUES: Final = ("blue", "green", "red")
TENANTS: Final = (TENANT, OTHER_TENANT)
BRIEF_S: Final = 0.02
FAR_S: Final = 3_600.0
LEASE_S: Final = 600.0


@attrs.frozen
class Held:
    """A delivery, current or stale."""

    number: int
    name: str
    job: Job

    @property
    def key(self) -> tuple[str, int]:
        """As the model knows it."""
        return self.name, self.number


def expect(what: str, expected: object, found: object) -> None:
    """Fail in words when the store differs from the model."""
    assert found == expected, f"{what}: expected {expected}, found {found}"


class Stage:
    """One example's store, which is emptied first."""

    def __init__(self, trial: Trial, queues: Sequence[Queue], findings: Findings) -> None:
        """Use two driver objects in turn."""
        self.trial = trial
        self.findings = findings
        self.story = Story()
        self.model = Model()
        self.wanted: dict[str, Wanted] = {}
        """Every job that was ever pushed, by its name."""
        self.held: list[Held] = []
        self._queues = queues
        self._ids: dict[str, str] = {}
        self._envelopes: dict[str, bytes] = {}
        self._began = self._last = 0
        self._moments: dict[int, tuple[int, int]] = {}
        self._shift_us = 0
        self._lapsing: list[str] = []
        self._until = 0
        findings.examples += 1
        self._empty()

    def _empty(self) -> None:
        try:
            for queue in QUEUES:
                self.queue.operator().clear(queue)
                self.queue.operator().resume(queue)
            self.queue.operator().flush()
            expect("what is left after every queue was cleared and resumed, and the failed jobs flushed", (0, []),
                   (len(self.trial.rows()), self.queue.queues()))  # fmt: skip
        except Exception as error:
            self.story.say("empty the store, as earlier steps left it")
            self.findings.failed(self.story, error)
            raise
        self._last = self.queue.driver.now()

    @property
    def queue(self) -> Queue:
        """The queue whose turn it is."""
        return self._queues[self.model.step % len(self._queues)]

    # Names, ids and contents.

    def id_of(self, name: str) -> str:
        """The id of a job: random, so that no order can come of it."""
        return self._ids.setdefault(name, str(uuid.uuid4()))

    def name_of(self, job_id: str) -> str:
        """The name of the job with an id."""
        return next((name for name, known in self._ids.items() if known == job_id), f"unknown job {job_id}")

    def fresh_name(self) -> str:
        """A name that no job has: A to Z, then A1, ..."""
        turn, letter = divmod(len(self.wanted), 26)
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[letter] + (str(turn) if turn else "")

    @staticmethod
    def payload_of(name: str, content: int) -> bytes:
        """The payload of a job, in bytes that no encoder would write."""
        return b'{"job" :  %b, "content": %d.0}' % (json.dumps(name).encode(), content)

    def job_for(self, want: Wanted, **options: Any) -> Job:
        """The job as an application makes it."""
        return Job.raw(
            self.trial.grant(want.tenant),
            NAME,
            self.payload_of(want.job, want.content),
            id=self.id_of(want.job),
            queue=want.queue,
            priority=want.priority,
            **options,
        )

    # Steps.

    @contextmanager
    def step(self, words: str) -> Iterator[None]:
        """Make a step, wait for what it brings about in a moment, and compare. A failure is told as a story."""
        self.model = self.model.next_step()
        self.story.say(words)
        self.findings.steps += 1
        self._began, self._shift_us = self._last, 0
        try:
            yield
            self._wait()
            self._compare()
        except Exception as error:
            self.findings.failed(self.story, error)
            raise

    def briefly(self) -> None:
        """Tell that the step makes a job due in a moment."""
        self._shift_us = round(BRIEF_S * 1e6)

    def lapsing(self, name: str, until_us: int) -> None:
        """Tell that a lease runs out in a moment."""
        self._lapsing.append(name)
        self._until = max(self._until, until_us)

    def _wait(self) -> None:
        driver = self.queue.driver
        self._last = driver.now()
        self._moments[self.model.step] = self._began + self._shift_us, self._last + self._shift_us
        if self._shift_us:
            self._until = max(self._until, self._last + self._shift_us)
        if self._until > self._last:
            eventually(lambda: driver.now() > self._until, "a moment passes")
            self._last = driver.now()
        if self._lapsing:
            self.model = self.model.lapse(self._lapsing)
            self.findings.produced["leases run out"] += len(self._lapsing)
            self._lapsing = []

    def refused(self, call: Callable[[], object], expected: str, at_fault: Sequence[int] = (), of: int = 1) -> None:
        """Expect a call to be refused by the error of that code, naming one of the places at fault among `of`."""
        try:
            found = call()
        except HesapeError as error:
            expect("the refusal", expected, error.code)
            if of > 1:
                named = error.index in at_fault
                assert named, f"the refusal names the place {error.index}, expected one of {list(at_fault)}"
            self.story.add(f"refused ({expected})")
        else:
            message = f"expected a refusal ({expected}), it was accepted and answered {found!r}"
            raise AssertionError(message)

    def delivered(self, job: Job, stored: Stored) -> Held:
        """Compare a delivered job with the model's, and keep its delivery."""
        delivery = attached(job)
        found = (job.tenant, job.queue, job.payload, job.priority, job.attempts, job.exceptions, job.last_error)
        payload = self.payload_of(stored.job, stored.content)
        expected = (stored.tenant, stored.queue, payload, stored.priority, stored.attempts, stored.exceptions)
        expect(f"tenant, queue, payload, priority, attempts, exceptions and error of {stored.job}",
               (*expected, stored.error), found)  # fmt: skip
        expect(f"action and lapses of {stored.job}", (NAME, stored.lapses), (job.action, delivery.lapses))
        held = Held(stored.delivery, stored.job, job)
        self.held.append(held)
        return held

    # Comparing.

    def _compare(self) -> None:
        queue = self.queue
        for name in QUEUES:
            counts = queue.counts(name)
            found = ", ".join(f"{getattr(counts, where)} {where}" for where in Where)
            expect(
                f"the counts of {name}", ", ".join(f"{self.model.count(name, where)} {where}" for where in Where), found
            )
        expect("the queues", self.model.queues(), queue.queues())
        self._compare_oldest(QUEUES[self.model.step % len(QUEUES)])
        rows = {self.name_of(job_id): row for job_id, row in self.trial.rows().items()}
        expect("the stored jobs", sorted(self.model.jobs), sorted(rows))
        for name, stored in self.model.jobs.items():
            self._compare_row(stored, rows[name])

    def _compare_oldest(self, name: str) -> None:
        found, since = self.queue.driver.oldest_pending(name), self.model.oldest(name)
        if since is None or found is None:
            expect(f"since when the oldest of {name} waits", since, found)
            return
        low, high = self._moments[since]
        assert low <= found <= high, f"the oldest of {name}: since {found}, expected {low} to {high}"

    def _compare_row(self, stored: Stored, row: RawRow) -> None:
        name = stored.job
        states = {
            Where.WAITING: {"ready", "scheduled"} | ({"reserved"} if stored.lapsed else set()),
            Where.LATER: {"scheduled"},
            Where.HELD: {"reserved"},
            Where.FAILED: {"failed"},
        }[stored.where]
        assert row["state"] in states, f"{name} lies as {row['state']}, expected {' or '.join(sorted(states))}"
        numbers = (row["attempts"], row["exceptions"], row["priority"])
        expect(f"the stored attempts, exceptions and priority of {name}",
               (stored.attempts, stored.exceptions, stored.priority), numbers)  # fmt: skip
        counted = row["lapses"] + (stored.lapsed and row["state"] == "reserved")
        expect(f"the stored lapses of {name}", stored.lapses, counted)
        expect(f"the stored tenant and queue of {name}", (stored.tenant, stored.queue), (row["tenant"], row["queue"]))
        if stored.error == TAMPERED:
            assert (row["last_error"] or "").startswith(TAMPERED), f"{name} is parked for {row['last_error']!r}"
        else:
            expect(f"the stored error of {name}", stored.error, row["last_error"])
        if name not in self._envelopes:
            end = b"\n" + self.payload_of(name, stored.content)
            assert row["envelope"].endswith(end), f"the stored payload of {name} isn't the pushed one"
            self._envelopes[name] = row["envelope"]
        assert row["envelope"] == self._envelopes[name], f"the stored envelope of {name} was changed"

    def forget_envelope(self, name: str) -> None:
        """Tell that a job's envelope was written anew, or changed behind the driver's back."""
        self._envelopes.pop(name, None)

    def overwrite(self, name: str, field: str) -> None:
        """Change a stored record behind the driver's back."""
        raw, job_id = self.trial.raw, self.id_of(name)
        if field == "envelope":
            self._envelopes[name] += b" "
            raw.overwrite(job_id, "envelope", self._envelopes[name])
        else:
            raw.overwrite(job_id, "name", NAME + ".altered")

    @staticmethod
    def seconds(when: When) -> float:
        """How far off it is."""
        return {When.NOW: 0.0, When.BRIEFLY: BRIEF_S, When.FAR: FAR_S}[when]
