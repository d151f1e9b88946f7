"""What an application imports: its configuration, its connections and its handlers in one place."""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from hesape import config, context, names
from hesape.config import Configuration, nearest
from hesape.errors import ActionMismatchError, ConfigError, HandlerError, NameInvalidError
from hesape.handlers import AttributeSettings, Handler, Middleware, Registry, attributes_of, checked_name
from hesape.jobs import grant_for
from hesape.manager import Manager

if TYPE_CHECKING:
    from hesape.envelope import Keys
    from hesape.jobs import Job
    from hesape.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """An application's handlers and connections.

    `path` is a configuration file or its folder, or a `Configuration`; without it, hesape.toml or pyproject.toml is
    looked for from the working directory upwards, and without any the default connection is SQLite at ./hesape.db. The
    file is read now, `ConfigError` says what is wrong in it; a connection is opened when it is first used.
    """

    def __init__(self, path: str | Path | Configuration | None = None, *, keys: Keys | None = None) -> None:
        """Read the configuration. `keys` stand in for those of `[signing]`."""
        self.configuration = path if isinstance(path, Configuration) else config.load(path)
        self.manager = Manager(self.configuration, keys=keys, run=self.run)
        self.handlers = Registry()
        self.middleware: list[Middleware] = []
        """What runs around every handler, the first outermost."""

    def handler(
        self,
        name: str,
        *,
        action: str | None = None,
        middleware: Iterable[Middleware] = (),
        **attributes: Unpack[AttributeSettings],
    ) -> Callable[[Callable[P, R]], Handler[P, R]]:
        """Register the decorated function for jobs of this name.

        `action` is what its jobs are authorised for, by default the name (G9). `attributes` are the fields of
        `hesape.Attributes`. `HandlerError` for what doesn't fit, and for a name that is taken.
        """
        known = checked_name(name)
        what = f"handler {known!r}"
        wanted = _action(known, action)
        settings, around = attributes_of(attributes, what), tuple(middleware)

        def register(function: Callable[P, R]) -> Handler[P, R]:
            handler = Handler(function, known, wanted, settings, around, self.connection)
            self.handlers.add(handler)
            return handler

        return register

    def connection(self, name: str | None = None) -> Queue:
        """The queue of a configured connection, by default of the default one."""
        return self.manager.connection(name)

    @property
    def keys(self) -> Keys:
        """The signing keys (G8)."""
        return self.manager.keys

    def run(self, job: Job) -> None:
        """Run a popped job's handler here and now, inside its middleware, and let its error out; for local drivers.

        As a worker, it runs under the job's own grant and refuses a job whose action isn't its handler's (G5, G9).
        """
        grant, handler = grant_for(job), self.handlers.find(job.name)
        if grant.action != handler.action:
            message = f"the job's action is {grant.action!r}, its handler {job.name!r} runs under {handler.action!r}"
            raise ActionMismatchError(message)

        def call() -> object:
            bound = handler.bind(job, grant)
            return asyncio.run(bound()) if handler.is_async else bound()

        step: Callable[[], object] = call
        for one in reversed((*self.middleware, *handler.middleware)):
            step = functools.partial(one, job, step)
        with context.running(job, grant):
            step()

    def close(self) -> None:
        """Close the connections; one that is used again opens anew."""
        self.manager.close()

    def __repr__(self) -> str:
        """Name the configuration, never a URL (E4)."""
        return f"<App {self.configuration.source}, {len(self.handlers.names)} handlers>"


def load_app(reference: str) -> App:
    """The App that `MODULE:ATTRIBUTE` names, its handlers checked; the working directory is on the path.

    `ConfigError` says which part of the reference leads nowhere, or where the module's import failed.
    """
    module_name, colon, attribute = reference.partition(":")
    if not module_name or not colon or not attribute:
        raise ConfigError(f"--app {reference}: expected MODULE:ATTRIBUTE, such as jobs:app")
    module = _import(module_name, reference)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if isinstance(found, App):
        found.handlers.check()
        return found
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    hint = nearest(attribute, apps) or f" (Apps there: {', '.join(apps) or 'none'})"
    what = f"has no {attribute!r}" if found is None else f"has a {type(found).__name__} there, expected a hesape.App"
    raise ConfigError(f"--app {reference}: module {module_name!r} {what}{hint}")


def _import(name: str, reference: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise ConfigError(f"--app {reference}: no module named {error.name!r} in {here} or installed") from None
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
        place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if len(frames) > 1 else ""
        text = f"importing {name!r} failed: {type(error).__name__}: {error}{place}"
        raise ConfigError(f"--app {reference}: {text}") from error


def _action(name: str, action: str | None) -> str:
    try:
        return names.check_action(name if action is None else action)
    except NameInvalidError as error:
        hint = "; its name is no action, so set action=" if action is None else ""
        raise HandlerError(f"handler {name!r}: {error}{hint}") from error
