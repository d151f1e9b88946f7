"""Handlers: functions registered under a job's name, with typed arguments, and the pushes that fit them.

    @app.handler("invoice.send", tries=5)
    def send_invoice(job: hesape.Job, invoice_id: int) -> None: ...

A parameter annotated `Job` or `Grant` is injected; the others come from the payload's keys, structured by their
annotations (`hesape.structure` lists which are possible). A decorated function stays callable as itself.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar

import attrs

from hesape import grants, names
from hesape.arguments import Parameters
from hesape.attributes import NO_ATTRIBUTES, Attributes
from hesape.config import nearest
from hesape.errors import (
    ActionMismatchError,
    HandlerError,
    HandlerUnknownError,
    HesapeError,
)
from hesape.grants import Grant
from hesape.jobs import Job, JobName

if TYPE_CHECKING:
    import uuid

    from hesape.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class Middleware(Protocol):
    """Runs around a handler. It calls `step` to go on, or doesn't, and returns what `step` returned."""

    def __call__(self, job: Job, step: Callable[[], object], /) -> object:
        """Run one delivery."""


class AttributeSettings(TypedDict, total=False):
    """The fields of `Attributes`, as a handler is registered with them."""

    tries: int
    backoff: float | timedelta | Iterable[float | timedelta]
    timeout: float | timedelta
    max_exceptions: int
    retry_until: datetime | None
    fail_on_timeout: bool | None
    unique_for: float | timedelta
    unique_key: str
    queue: str
    wraps: str


@attrs.define(eq=False, slots=False)
class Handler(Generic[P, R]):
    """A function under a job's name, and what the name promises: an action, attributes, middleware."""

    function: Callable[P, R]
    name: str
    action: str
    attributes: Attributes = attrs.field(default=NO_ATTRIBUTES)
    middleware: tuple[Middleware, ...] = ()
    parameters: Parameters = attrs.field(init=False, repr=False)
    _connect: Callable[[str | None], Queue] | None = attrs.field(default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        """Look like the function."""
        functools.update_wrapper(self, self.function, updated=())
        self.parameters = Parameters(self.function, f"handler {self.name!r}")

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether calling it gives a coroutine."""
        return inspect.iscoroutinefunction(inspect.unwrap(self.function))

    def bind(self, job: Job, grant: Grant) -> Callable[[], R]:
        """The call that runs `job` under `grant`, its arguments read from the payload.

        A payload is an object, whose keys are the parameters, or an array, which fills them in order.
        `ArgumentsMismatchError` names everything that is missing, unexpected or of another type: no retry mends it.
        """
        args, kwargs = self.parameters.read(job, grant)
        return functools.partial(self.function, *args, **kwargs)

    # Pushing.

    def using(
        self,
        *,
        tx: object = None,
        queue: str = "",
        priority: int | None = None,
        connection: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
        run_at: datetime | None = None,
        display_name: str = "",
        id: str | uuid.UUID | None = None,  # noqa: A002 - it is the job's id
    ) -> Pusher:
        """Pushes of this handler with settings of their own, apart from the payload's keys."""
        return Pusher(
            handler=self,
            tx=tx,
            queue=queue,
            priority=priority,
            connection=connection,
            attributes=attributes,
            run_at=run_at,
            display_name=display_name,
            id=id,
        )

    def push(self, grant: Grant, /, **arguments: Any) -> Job:
        """Store a job for this handler; its action and its arguments are checked before anything is written (G9)."""
        return self.using().push(grant, **arguments)

    def later(self, grant: Grant, delay: float | timedelta, /, **arguments: Any) -> Job:
        """As `push`, due after `delay`: seconds or a timedelta."""
        return self.using().later(grant, delay, **arguments)

    def job(self, grant: Grant, /, **arguments: Any) -> Job:
        """The job that `push` would store, for a bulk."""
        return self.using().job(grant, **arguments)

    def queue(self, connection: str | None) -> Queue:
        """The queue that a push of this handler goes to."""
        if self._connect is None:
            raise HandlerError(f"handler {self.name!r} belongs to no App: register it with App.handler to push it")
        return self._connect(connection)


@attrs.frozen(kw_only=True)
class Pusher:
    """A handler's pushes with settings of their own. Made by `Handler.using`."""

    handler: Handler[..., Any]
    tx: object = attrs.field(default=None, repr=False)
    queue: str = ""
    priority: int | None = None
    connection: str | None = None
    attributes: Attributes = NO_ATTRIBUTES
    run_at: datetime | None = None
    display_name: str = ""
    id: str | uuid.UUID | None = None

    def push(self, grant: Grant, /, **arguments: Any) -> Job:
        """As `Handler.push`."""
        job = self.job(grant, **arguments)
        return self.handler.queue(self.connection).push(grant, job, tx=self.tx)

    def later(self, grant: Grant, delay: float | timedelta, /, **arguments: Any) -> Job:
        """As `Handler.later`."""
        job = self.job(grant, **arguments)
        return self.handler.queue(self.connection).later(grant, delay, job, tx=self.tx)

    def job(self, grant: Grant, /, **arguments: Any) -> Job:
        """As `Handler.job`."""
        handler = self.handler
        tenant, action, _ = grants.facts(grant)
        if tenant and action != handler.action:
            message = f"handler {handler.name!r} runs under the action {handler.action!r}, the grant is for {action!r}"
            raise ActionMismatchError(message)
        return Job.new(
            grant,
            handler.name,
            handler.parameters.write(arguments),
            queue=self.queue,
            run_at=self.run_at,
            priority=self.priority,
            attributes=self.attributes.over(handler.attributes),
            display_name=self.display_name,
            id=self.id,
        )


class Registry:
    """Handlers by name."""

    def __init__(self) -> None:
        """Begin empty."""
        self._handlers: dict[str, Handler[..., Any]] = {}

    @property
    def names(self) -> list[str]:
        """The registered names, sorted."""
        return sorted(self._handlers)

    def add(self, handler: Handler[..., Any]) -> None:
        """Register a handler; `HandlerError` when its name is taken by another function."""
        known = self._handlers.setdefault(handler.name, handler)
        if known is not handler:
            both = f"{_where(known)} and {_where(handler)}"
            raise HandlerError(f"handler {handler.name!r} is registered twice, by {both}")

    def find(self, job_name: str) -> Handler[..., Any]:
        """The handler of exactly this name, else of the part before its `@`, else `HandlerUnknownError`."""
        found = self._handlers.get(job_name) or self._handlers.get(JobName.parse(job_name)[0])
        if found is None:
            hint, known = nearest(job_name, self.names), ", ".join(self.names) or "none"
            raise HandlerUnknownError(f"no handler for the job {job_name!r}{hint} (registered: {known})")
        return found

    def check(self) -> None:
        """Resolve every handler's parameters; the first that can't be filled raises `HandlerError`."""
        for handler in self._handlers.values():
            handler.parameters.check()

    def __iter__(self) -> typing.Iterator[Handler[..., Any]]:
        """Every handler, by name."""
        return iter([self._handlers[name] for name in self.names])

    def __contains__(self, name: object) -> bool:
        """Whether a handler has exactly this name."""
        return name in self._handlers


def attributes_of(settings: AttributeSettings, what: str) -> Attributes:
    """The attributes of keyword settings; `HandlerError` names one that doesn't exist, and the nearest that does."""
    known = [field.name for field in attrs.fields(Attributes)]
    for key in settings:
        if key not in known:
            raise HandlerError(f"{what}: no setting {key!r}{nearest(key, known)} (known: {', '.join(known)})")
    try:
        return Attributes(**settings)
    except HesapeError as error:
        raise HandlerError(f"{what}: {error}") from error


def checked_name(name: object) -> str:
    """A handler's name, or `HandlerError` when the decorator was used without one."""
    if callable(name):
        raise HandlerError('a handler needs a name: write @app.handler("invoice.send")')
    return names.check_text("handler name", name)


def _where(handler: Handler[..., Any]) -> str:
    return f"{handler.function.__module__}.{handler.function.__qualname__}"
