"""Every step that the machine knows: told in words, made on the store, and followed in the model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hesape.errors import LeaseLostError
from hesape.jobs import attached
from hesape.records import Key, new_token
from hesape.times import to_us
from hesape_conformance.machine.model import Wanted, When, Where
from hesape_conformance.machine.stage import LEASE_S, Stage, expect
from hesape_conformance.trial import FORGET, NAME, OTHER_TENANT, READ, RETRY, TENANT, ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hesape.grants import Grant
    from hesape.jobs import Job
    from hesape_conformance.machine.model import Refusal
    from hesape_conformance.machine.stage import Held

PAST: Final = datetime(2001, 1, 1, tzinfo=UTC)
DOORS: Final = ("push", "push_on", "push_raw", "later", "in the past")
"""How a job that is due now can be pushed."""
FORGERIES: Final = ("another tenant", "another action", "another author", "no preparation")
FOREIGN: Final = ("delete", "release", "fail", "extend", "hand back")


class Moves(Stage):
    """The steps of an example."""

    # Pushing.

    def push(self, want: Wanted, door: str) -> None:
        """Push one job, new or known."""
        how = door if want.when is When.NOW else "later"
        with self.step(f"push {_described(want)} ({how})"):
            after, refused, known = self.model.push([want])
            if refused:
                self.refused(lambda: self._push(want, how), refused[0])
                self.findings.produced["other contents"] += 1
            else:
                expect("the id of the pushed job", self.id_of(want.job), self._push(want, how).id)
                self._pushed([want], known)
            if want.when is When.BRIEFLY and not refused and not known:
                self.briefly()
            self.model = after

    def _push(self, want: Wanted, how: str) -> Job:
        queue, grant = self.queue, self.trial.grant(want.tenant)
        if how == "push_on":
            return queue.push_on(grant, want.queue, self.job_for(want))
        if how == "push_raw":
            payload = self.payload_of(want.job, want.content)
            return queue.push_raw(
                grant, NAME, payload, id=self.id_of(want.job), queue=want.queue, priority=want.priority
            )
        if how == "later":
            return queue.later(grant, self.seconds(want.when) or -5, self.job_for(want))
        return queue.push(grant, self.job_for(want, **({"run_at": PAST} if how == "in the past" else {})))

    def bulk(self, wanted: Sequence[Wanted]) -> None:
        """Push several jobs of one tenant together, all due now or in an hour."""
        with self.step(f"push together {'; '.join(map(_described, wanted))}"):
            after, refused, known = self.model.push(wanted)
            grant = self.trial.grant(wanted[0].tenant)
            jobs = [
                self.job_for(want, **({"run_at": ahead(self.seconds(want.when))} if want.when is When.FAR else {}))
                for want in wanted
            ]
            if refused:
                self.refused(lambda: self.queue.bulk(grant, jobs), refused[0], refused[1], len(wanted))
                self.findings.produced["other contents"] += len(refused[1])
            else:
                pushed = self.queue.bulk(grant, jobs)
                expect("the answer", [want.job for want in wanted], [self.name_of(job.id) for job in pushed])
                self._pushed(wanted, known)
            self.model = after

    def _pushed(self, wanted: Sequence[Wanted], known: int) -> None:
        self.findings.produced["repeated ids"] += known
        if known:
            self.story.add("known already")
        for want in wanted:
            if want.job not in self.model.jobs:
                self.forget_envelope(want.job)

    def forge(self, kind: str, tenant: str) -> None:
        """Push what no grant covers."""
        with self.step(f"push with {kind} than the grant has" if kind.startswith("another") else f"store with {kind}"):
            job = self.job_for(Wanted(job="forged", tenant=tenant, queue="red"))
            grant: Grant = self.trial.grant(tenant)
            if kind == "another tenant":
                grant = self.trial.grant(OTHER_TENANT if tenant == TENANT else TENANT)
            elif kind == "another action":
                grant = self.trial.grant(tenant, "invoice.void")
            elif kind == "another author":
                job.authorized_by = "somebody"
            if kind == "no preparation":
                self.refused(lambda: self.queue.driver.store([job]), "forged")  # type: ignore[list-item]
            else:
                self.refused(lambda: self.queue.push(grant, job), "forged")
            self.findings.produced["forged pushes"] += 1

    # Delivering.

    def pop(self, queues: Sequence[str], n: int, when: When) -> None:
        """Pop up to n jobs; with a lease of a moment they are due again when the step is over."""
        lease = LEASE_S if when is When.FAR else self.seconds(when)
        brief = ", under a lease of a moment" if when is When.BRIEFLY else ""
        with self.step(f"pop {n} from {', '.join(queues)}{brief}"):
            self.model, claimed = self.model.claim(queues, n)
            jobs = self.queue.pop(queues, n, lease=lease)
            names = [self.name_of(job.id) for job in jobs]
            self.story.add(", ".join(names) or "nothing")
            expect("what is delivered", [job.job for job in claimed.jobs], names)
            for job, stored in zip(jobs, claimed.jobs, strict=True):
                held = self.delivered(job, stored)
                until = attached(job).reserved_until_us or 0
                assert until >= self._began + lease * 1e6, f"the lease of {held.name} is too short"
                if when is When.BRIEFLY:
                    self.lapsing(held.name, until)
            produced = self.findings.produced
            produced["equal priorities"] += claimed.ties
            produced["tampering"] += len(claimed.parked)
            produced["pauses"] += claimed.passed_over

    def delete(self, helds: Sequence[Held]) -> None:
        """Delete by deliveries, current ones and stale."""
        with self.step(f"delete {self._told(helds)}"):
            self.model, lost = self.model.delete([held.key for held in helds])
            found = self.queue.driver.delete_jobs([held.job for held in helds])
            self._compare_lost(lost, [held.key for held in helds if held.job in found])

    def release(self, held: Held, when: When, exceptions: int, *, spent: bool) -> None:
        """Release a job, with an error or without."""
        error = f"Boom: {exceptions}" if exceptions else None
        with self.step(f"release {self._told([held])}, due {when}{'' if spent else ', unspent'}"):
            current = self.model.current(*held.key)
            self.model, fine = self.model.release(*held.key, when, spent=spent, error=error, exceptions=exceptions)
            held.job.last_error, held.job.exceptions = error, exceptions
            driver = self.queue.driver
            self._settled(held, fine, lambda: driver.release_job(held.job, self.seconds(when), spent=spent))
            if current and when is When.BRIEFLY:
                self.briefly()

    def fail(self, held: Held, exceptions: int) -> None:
        """Park a job."""
        error = f"Boom: {exceptions}\n\nat the end"
        with self.step(f"fail {self._told([held])}"):
            self.model, fine = self.model.fail(*held.key, error=error, exceptions=exceptions)
            held.job.exceptions = exceptions
            self._settled(held, fine, lambda: self.queue.driver.fail_job(held.job, error))

    def _settled(self, held: Held, fine: bool, call: Callable[[], None]) -> None:  # noqa: FBT001 - what the model says
        try:
            call()
        except LeaseLostError:
            self._compare_lost([] if fine else [held.key], [held.key])
        else:
            self._compare_lost([] if fine else [held.key], [])

    def extend(self, helds: Sequence[Held], lease_s: float) -> None:
        """Extend leases: those of less than they have stay as they are."""
        with self.step(f"extend {self._told(helds)} to {lease_s:g} s"):
            current = [held for held in helds if self.model.current(*held.key)]
            before = [attached(held.job).reserved_until_us or 0 for held in current]
            deadlines, lost = self.queue.driver.extend([held.job for held in helds], lease_s)
            self._compare_lost([held.key for held in helds if held not in current],
                               [held.key for held in helds if held.job in lost])  # fmt: skip
            for held, old, new in zip(current, before, deadlines, strict=True):
                least = old if lease_s < LEASE_S else max(old, self._began + int(lease_s * 1e6))
                exact = lease_s < LEASE_S and to_us(new) != old
                assert to_us(new) >= least, f"the lease of {held.name} was shortened"
                assert not exact, f"the lease of {held.name} was moved by an extension that is shorter"

    def hand_back(self, helds: Sequence[Held]) -> None:
        """Hand back deliveries that never started."""
        with self.step(f"hand back {self._told(helds)}"):
            self.queue.driver.hand_back([held.job for held in helds])
            self.model = self.model.hand_back([held.key for held in helds])

    def foreign(self, what: str, name: str) -> None:
        """Settle a job by a token that no delivery has."""
        with self.step(f"{what} {name} by a foreign token"):
            driver, key = self.queue.driver, Key(self.id_of(name), new_token())
            if what == "delete":
                expect("what was lost", [key], driver._delete([key], repeat=False, tx=None))  # noqa: SLF001 - by its key alone
            elif what == "release":
                answer = driver._release(key, delay_us=0, spent=True, error="x", exceptions=9, tx=None)  # noqa: SLF001
                expect("whether it was current", found=answer, expected=False)
            elif what == "fail":
                answer = driver._fail(key, error="x", exceptions=9, tx=None)  # noqa: SLF001
                expect("whether it was current", found=answer, expected=False)
            elif what == "extend":
                expect("the deadlines", [None], driver._extend([key], 9_000_000_000))  # noqa: SLF001
            else:
                driver._hand_back([key])  # noqa: SLF001
            self.findings.produced["foreign tokens"] += name in self.model.jobs

    def _told(self, helds: Sequence[Held]) -> str:
        return ", ".join(
            f"{held.name} by {'the current' if self.model.current(*held.key) else 'a stale'} delivery ({held.number})"
            for held in helds
        )

    def _compare_lost(self, expected: list[tuple[str, int]], found: list[tuple[str, int]]) -> None:
        expect("which deliveries were lost", expected, found)
        self.findings.produced["lost leases"] += len(found)
        if found:
            self.story.add("lost")

    # Repairing.

    def pause(self, queue: str, *, on: bool) -> None:
        """Pause or resume a queue."""
        with self.step(f"{'pause' if on else 'resume'} {queue}"):
            operator = self.queue.operator()
            (operator.pause if on else operator.resume)(queue)
            self.model = self.model.pause(queue, on=on)

    def clear(self, queue: str) -> None:
        """Clear a queue."""
        with self.step(f"clear {queue}"):
            self.model, gone = self.model.clear(queue)
            expect("how many went", gone, self.queue.operator().clear(queue))

    def flush(self, age_s: float | None) -> None:
        """Remove the failed jobs, or those that are older."""
        with self.step("flush" if age_s is None else f"prune what failed more than {age_s:g} s ago"):
            after, gone = self.model.flush()
            operator = self.queue.operator()
            if age_s:
                expect("how many went", 0, operator.prune(age_s))
            else:
                expect("how many went", gone, operator.flush() if age_s is None else operator.prune(age_s))
                self.model = after

    def retry(self, who: str | None, names: Sequence[str]) -> None:
        """Retry failed jobs as a tenant or as the operator."""
        ids = [self.id_of(name) for name in names]
        with self.step(f"retry {', '.join(names)} as {who or 'the operator'}"):
            self.model, refused = self.model.retry(who, names)
            queue = self.queue

            def call() -> None:
                if who is None:
                    queue.operator().retry(ids)
                else:
                    queue.retry(self.trial.grant(who, RETRY), ids)

            self._repaired(call, refused, len(ids))

    def forget(self, who: str | None, names: Sequence[str]) -> None:
        """Forget failed jobs as a tenant or as the operator."""
        ids = [self.id_of(name) for name in names]
        with self.step(f"forget {', '.join(names)} as {who or 'the operator'}"):
            self.model, refused = self.model.forget(who, names)
            queue = self.queue

            def call() -> None:
                grant = self.trial.grant(who or TENANT, FORGET)
                gone = queue.operator().forget(ids) if who is None else queue.forget(grant, ids)
                expect("how many went", len(ids), gone)

            self._repaired(call, refused, len(ids))

    def _repaired(self, call: Callable[[], None], refused: tuple[Refusal, int] | None, of: int) -> None:
        if refused:
            self.refused(call, refused[0], [refused[1]], of)
        else:
            call()

    def look(self, who: str | None, queue: str | None, limit: int) -> None:
        """Look at the failed list."""
        where = queue or "every queue"
        with self.step(f"look at {limit} failed jobs of {where} as {who or 'the operator'}"):
            expected = self.model.failed(who, queue)[:limit]
            if who is None:
                found = self.queue.operator().failed(queue=queue, limit=limit)
            else:
                found = self.queue.failed(self.trial.grant(who, READ), queue=queue, limit=limit)
            expect("the list", [job.job for job in expected], [self.name_of(job.id) for job in found])
            for stored, job in zip(expected, found, strict=True):
                expect(f"attempts and exceptions of {stored.job}",
                       (stored.attempts, stored.exceptions), (job.attempts, job.exceptions))  # fmt: skip
                expect(f"whether {stored.job} was tampered with", bool(stored.tampered), bool(job.problem))

    def tamper(self, name: str, field: str) -> None:
        """Change a stored record behind the driver's back."""
        with self.step(f"change the stored {field} of {name}"):
            self.overwrite(name, field)
            self.model = self.model.tamper(name, field)

    # What the steps can be made on.

    def stale(self) -> list[Held]:
        """Deliveries that are over."""
        return [held for held in self.held if not self.model.current(*held.key)]

    def current(self) -> list[Held]:
        """Deliveries that hold their job."""
        return [held for held in self.held if self.model.current(*held.key)]

    def waiting(self) -> list[str]:
        """The names of the jobs that are due."""
        return [job.job for job in self.model.select(lambda job: job.where is Where.WAITING)]


def _described(want: Wanted) -> str:
    content = ", other content" if want.content else ""
    return f"{want.job} for {want.tenant} on {want.queue}, priority {want.priority}, due {want.when}{content}"
