"""Every operation of a store: how it is prepared, what the store holds before and after it, and how it is called.

What may come of one attempt whose connection was cut is the same for all, unless the operation says otherwise.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import attrs

from hesape import errors
from hesape_conformance.sweep.scene import EMPTY, LEASE_US, LOCK, OWNER, WORKER, Scene
from hesape_conformance.trial import FORGET, RETRY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hesape.driver import Driver
    from hesape.queue import Queue

RETURNED: Final = "returned"
BEFORE, AFTER, BETWEEN = "as before", "as after", "in between"
OUTCOMES: Final[Mapping[str, frozenset[str]]] = {
    RETURNED: frozenset({AFTER}),
    errors.StoreUnavailableError.code: frozenset({BEFORE}),
    errors.StoreBusyError.code: frozenset({BEFORE}),
    errors.OutcomeUnknownError.code: frozenset({BEFORE, AFTER}),
}
"""What the store may hold after one attempt, by what the attempt told."""
STEPWISE: Final[Mapping[str, frozenset[str]]] = {
    RETURNED: frozenset({AFTER}),
    errors.StoreUnavailableError.code: frozenset({BEFORE, BETWEEN}),
    errors.OutcomeUnknownError.code: frozenset({BEFORE, BETWEEN, AFTER}),
}
"""A schema is migrated step by step where the store has no transactions for that, and each step is made once."""

HOUSEKEEPING: Final[Mapping[str, frozenset[str]]] = {
    **OUTCOMES,
    errors.StoreUnavailableError.code: frozenset({BEFORE, AFTER}),
}
"""A rescue is an atomic step for each dead worker and one for what expired. It comes again within a second."""


@attrs.frozen(kw_only=True)
class Operation:
    """One operation, as data."""

    name: str
    prepare: Callable[[Scene], object]
    before: str
    after: str
    call: Callable[[Scene, Driver, bool], object]
    """One attempt; the flag says that an earlier one may have been executed. Asserts what it answers."""
    look: Callable[[Scene], str] = Scene.jobs
    outcomes: Mapping[str, frozenset[str]] = OUTCOMES
    over: type[errors.HesapeError] | None = None
    """What a second call is refused with when the first one was executed; `None`: it answers as the first."""
    queue: Callable[[Scene, Queue], object] | None = None
    """The same as an application calls it, where core repeats it until it has an answer."""
    live: tuple[int, int, str] | None = None
    """With a consumer on the store: how often it gets each job, at least and at most, and what is left at the end."""
    bare: bool = False
    """Whether it begins on a store without tables."""


def _store(scene: Scene, driver: Driver, _: bool) -> None:  # noqa: FBT001 - the shape of a call
    driver._store(scene.rows(), None)  # noqa: SLF001 - one attempt is the subject


def _reserve(scene: Scene, driver: Driver, repeat: bool) -> None:  # noqa: FBT001
    found = driver.reserve(scene.claim._replace(repeat=repeat)).rows
    assert len(found) == 2, f"the claim returns {len(found)} jobs, expected 2"


def _settle_and_reserve(scene: Scene, driver: Driver, repeat: bool) -> None:  # noqa: FBT001
    found = driver.reserve(scene.claim._replace(n=1, done=tuple(scene.keys()), repeat=repeat))
    assert (len(found.rows), found.lost) == (1, []), f"{len(found.rows)} jobs, {len(found.lost)} lost, expected 1 and 0"


def _delete(scene: Scene, driver: Driver, repeat: bool) -> None:  # noqa: FBT001
    lost = driver._delete(scene.keys(), repeat=repeat, tx=None)  # noqa: SLF001
    assert lost == [], f"{len(lost)} deletions of {len(scene.held)} are called lost"


def _release(delay_us: int, *, spent: bool) -> Callable[[Scene, Driver, bool], None]:
    def call(scene: Scene, driver: Driver, _: bool) -> None:  # noqa: FBT001
        [key] = scene.keys()
        fine = driver._release(key, delay_us=delay_us, spent=spent, error="Boom: now", exceptions=1, tx=None)  # noqa: SLF001
        assert fine, "the release is called lost"

    return call


def _fail(scene: Scene, driver: Driver, _: bool) -> None:  # noqa: FBT001
    [key] = scene.keys()
    assert driver._fail(key, error="Boom: now", exceptions=1, tx=None), "the failure is called lost"  # noqa: SLF001


def _extend(scene: Scene, driver: Driver, _: bool) -> None:  # noqa: FBT001
    assert None not in driver._extend(scene.keys(), LEASE_US), "an extension is called lost"  # noqa: SLF001


def _release_held(scene: Scene, _: Queue) -> None:
    scene.held[0].last_error = "Boom: now"
    scene.held[0].release()


def _all_held(method: str, *arguments: Any) -> Callable[[Scene, Queue], None]:
    def call(scene: Scene, _: Queue) -> None:
        for job in scene.held:
            getattr(job, method)(*arguments)

    return call


def _pop(scene: Scene, queue: Queue) -> None:
    scene.held = queue.pop(n=2)


def _once(call: Callable[[Scene, Queue], object]) -> Callable[[Scene, Queue], object]:
    """An operation that core makes once: an unknown outcome is told, and the caller looks and repeats."""

    def queued(scene: Scene, queue: Queue) -> None:
        try:
            call(scene, queue)
        except errors.OutcomeUnknownError:
            with contextlib.suppress(errors.NotFailedError, errors.JobNotFoundError):
                call(scene, queue)

    return queued


MANY: Final = 600
OPERATIONS: Final = (
    Operation(
        name="push",
        prepare=lambda scene: scene.new(1, 20_000),
        before=EMPTY,
        after="1 ready after 0",
        call=_store,
        queue=lambda scene, queue: queue.push(scene.trial.grant(), scene.fresh[0]),
        live=(1, 2, EMPTY),
    ),
    Operation(
        name="bulk",
        prepare=lambda scene: scene.new(MANY, 200),
        before=EMPTY,
        after=f"{MANY} ready after 0",
        call=_store,
        queue=lambda scene, queue: queue.bulk(scene.trial.grant(), scene.fresh),
        live=(1, 2, EMPTY),
    ),
    Operation(
        name="pop",
        prepare=lambda scene: scene.ready(2),
        before="2 ready after 0",
        after="2 reserved after 1",
        call=_reserve,
        queue=_pop,
        live=(0, 1, EMPTY),
    ),
    Operation(
        name="pop_with_deletions",
        prepare=lambda scene: scene.reserved(2, beside=1),
        before="1 ready after 0, 2 reserved after 1",
        after="1 reserved after 1",
        call=_settle_and_reserve,
    ),
    Operation(
        name="delete",
        prepare=lambda scene: scene.reserved(1),
        before="1 reserved after 1",
        after=EMPTY,
        call=_delete,
        queue=_all_held("delete"),
        live=(0, 0, EMPTY),
    ),
    Operation(
        name="delete_many",
        prepare=lambda scene: scene.reserved(5),
        before="5 reserved after 1",
        after=EMPTY,
        call=_delete,
        queue=lambda scene, queue: queue.driver.delete_jobs(scene.held),
        live=(0, 0, EMPTY),
    ),
    Operation(
        name="release",
        prepare=lambda scene: scene.reserved(1),
        before="1 reserved after 1",
        after="1 ready after 1 (Boom)",
        call=_release(0, spent=True),
        queue=_release_held,
        live=(1, 1, EMPTY),
    ),
    Operation(
        name="release_unspent_for_later",
        prepare=lambda scene: scene.reserved(1),
        before="1 reserved after 1",
        after="1 scheduled after 0 (Boom)",
        call=_release(3_600_000_000, spent=False),
    ),
    Operation(
        name="fail",
        prepare=lambda scene: scene.reserved(1),
        before="1 reserved after 1",
        after="1 failed after 1 (Boom)",
        call=_fail,
        queue=_all_held("fail", "Boom: now"),
        live=(0, 0, "1 failed after 1 (Boom)"),
    ),
    Operation(
        name="extend",
        prepare=lambda scene: scene.reserved(3),
        before="3 reserved after 1",
        after="3 reserved after 1",
        call=_extend,
        queue=_all_held("extend", 900.0),
        live=(0, 0, "3 reserved after 1"),
    ),
    Operation(
        name="hand_back",
        prepare=lambda scene: scene.reserved(2),
        before="2 reserved after 1",
        after="2 ready after 0",
        call=lambda scene, driver, _: driver._hand_back(scene.keys()),  # noqa: SLF001
        queue=lambda scene, queue: queue.driver.hand_back(scene.held),
        live=(1, 1, EMPTY),
    ),
    Operation(
        name="retry",
        prepare=lambda scene: scene.parked(2),
        before="2 failed after 1 (Boom)",
        after="2 ready after 0",
        call=lambda scene, driver, _: driver.retry(None, scene.failed_ids()),
        over=errors.NotFailedError,
        queue=_once(lambda scene, queue: queue.retry(scene.trial.grant(action=RETRY), scene.failed_ids())),
    ),
    Operation(
        name="forget",
        prepare=lambda scene: scene.parked(2),
        before="2 failed after 1 (Boom)",
        after=EMPTY,
        call=lambda scene, driver, _: driver.forget(None, scene.failed_ids()),
        over=errors.JobNotFoundError,
        queue=_once(lambda scene, queue: queue.forget(scene.trial.grant(action=FORGET), scene.failed_ids())),
    ),
    Operation(
        name="prune",
        prepare=lambda scene: scene.parked(2),
        before="2 failed after 1 (Boom)",
        after=EMPTY,
        call=lambda _, driver, __: driver.prune(None),
        queue=_once(lambda _, queue: queue.operator().flush()),
    ),
    Operation(
        name="clear",
        prepare=lambda scene: scene.mixed(),
        before="1 failed after 1 (Boom), 1 ready after 0, 1 reserved after 1, 1 scheduled after 0",
        after="1 failed after 1 (Boom)",
        call=lambda _, driver, __: driver.clear("default"),
        queue=_once(lambda _, queue: queue.operator().clear("default")),
    ),
    Operation(
        name="pause",
        prepare=lambda scene: scene.ready(1),
        before="running",
        after="paused",
        call=lambda _, driver, __: driver.pause("default"),
        look=Scene.paused,
        queue=lambda _, queue: queue.operator().pause("default"),
    ),
    Operation(
        name="resume",
        prepare=lambda scene: scene.driver.pause("default"),
        before="paused",
        after="running",
        call=lambda _, driver, __: driver.resume("default"),
        look=Scene.paused,
        queue=lambda _, queue: queue.operator().resume("default"),
    ),
    Operation(
        name="beat",
        prepare=lambda scene: scene.ready(1),
        before="nobody",
        after=WORKER,
        call=lambda _, driver, __: driver.beat(WORKER, LEASE_US, LEASE_US),
        look=Scene.registered,
    ),
    Operation(
        name="rescue",
        prepare=lambda scene: scene.dying(),
        before="1 reserved after 1",
        after="1 ready after 1",
        call=lambda _, driver, __: driver.rescue(),
        outcomes=HOUSEKEEPING,
    ),
    Operation(
        name="lock",
        prepare=lambda scene: scene.ready(1),
        before="0 entries",
        after="1 entries",
        call=lambda _, driver, __: _true(driver.lock(LOCK, OWNER, LEASE_US)),
        look=Scene.entries,
    ),
    Operation(
        name="unlock",
        prepare=lambda scene: scene.driver.lock(LOCK, OWNER, LEASE_US),
        before="1 entries",
        after="0 entries",
        call=lambda _, driver, repeat: _true(driver.unlock(LOCK, OWNER) or repeat),
        look=Scene.entries,
    ),
    Operation(
        name="write_flag",
        prepare=lambda scene: scene.ready(1),
        before="0 entries",
        after="1 entries",
        call=lambda _, driver, __: driver.write_flag(LOCK, "1", LEASE_US),
        look=Scene.entries,
    ),
    Operation(
        name="looks",
        prepare=lambda scene: scene.mixed(),
        before="1 failed after 1 (Boom), 1 ready after 0, 1 reserved after 1, 1 scheduled after 0",
        after="1 failed after 1 (Boom), 1 ready after 0, 1 reserved after 1, 1 scheduled after 0",
        call=lambda scene, driver, _: [
            driver.counts("default"),
            driver.queues(),
            driver.oldest_pending("default"),
            driver.failed(None, queue=None, limit=9, before=None),
            driver.find(None, scene.failed_ids()[0]),
            driver.workers(),
            driver.now(),
        ],
        queue=lambda _, queue: queue.counts(),
    ),
    Operation(
        name="migrate",
        prepare=lambda scene: scene.bare(),
        before="none",
        after="latest",
        call=lambda _, driver, __: driver.migrate(),
        look=Scene.version,
        outcomes=STEPWISE,
        bare=True,
    ),
)


def _true(answer: object) -> None:
    assert answer, "the lock isn't its owner's"
