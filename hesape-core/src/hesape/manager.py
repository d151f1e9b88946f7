"""Connections by name: each opened when it is first used, once, whoever asks from which thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hesape import config, plugins
from hesape.driver import Driver
from hesape.envelope import NO_KEYS, Keys
from hesape.errors import ConfigError, DriverBrokenError, HesapeError, UnsupportedError
from hesape.masking import scrub
from hesape.queue import Queue

if TYPE_CHECKING:
    from hesape.config import Configuration, ConnectionSettings
    from hesape.driver import DriverSpec
    from hesape.jobs import Job
    from hesape.plugins import Plugins


class Manager:
    """The connections of one configuration, and what drivers may ask of it."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        keys: Keys | None = None,
        run: Callable[[Job], None] | None = None,
        found: Plugins | None = None,
    ) -> None:
        """Open drivers of `found`, by default what is installed; `run` is what local drivers run a job with."""
        self.configuration = configuration
        self._keys = keys
        self._run = run
        self._plugins = found
        self._queues: dict[str, Queue] = {}
        self._opening: list[str] = []
        self._lock = threading.RLock()

    @property
    def plugins(self) -> Plugins:
        """Where drivers come from."""
        return self._plugins or plugins.installed()

    @property
    def keys(self) -> Keys:
        """The application's signing keys (G8)."""
        if self._keys is None:
            self._keys = self.configuration.keys()
        return self._keys

    def spec(self, name: str | None = None) -> DriverSpec:
        """What the driver of a connection claims; opens nothing."""
        return self.plugins.driver(self.configuration.settings(name).driver)

    def connection(self, name: str | None = None) -> Queue:
        """The queue of a connection, by default of the default one. Nothing is connected before it is used.

        `ConfigError` for what is wrong in the configuration, a `DriverError` for a driver that can't be used.
        """
        wanted = self.configuration.choose(name)
        found = self._queues.get(wanted)
        if found is None:
            with self._lock:
                found = self._queues.get(wanted) or self._open(wanted)
        return found

    def _open(self, name: str) -> Queue:
        if name in self._opening:
            circle = " -> ".join((*self._opening, name))
            raise ConfigError(f"{self.configuration.source}: connections.{name}: it leads back to itself: {circle}")
        self._opening.append(name)
        try:
            settings = self.configuration.settings(name)
            driver = _opened(self.plugins.driver(settings.driver), settings, self)
            notify = self.plugins.notify if self.plugins.observers() else None
            queue = self._queues[name] = Queue(driver, name=name, keys=self.keys, notify=notify)
        finally:
            self._opening.pop()
        return queue

    @contextmanager
    def standing_in(self, queues: Mapping[str, Queue]) -> Iterator[None]:
        """Have these queues stand in for the connections of their names inside the block, for tests."""
        with self._lock:
            opened, self._queues = self._queues, {**self._queues, **queues}
        try:
            yield
        finally:
            with self._lock:
                self._queues = {name: queue for name, queue in self._queues.items() if name not in queues} | opened

    # What a driver asks of its host.

    def run(self, job: Job) -> None:
        """Run a job's handler here and now."""
        if self._run is None:
            message = f"job {job.id} ({job.name}) can't run here: a local driver needs the handlers of an App"
            raise UnsupportedError(message)
        self._run(job)

    def driver(self, connection: str) -> Driver:
        """The driver of another connection."""
        return self.connection(connection).driver

    def close(self) -> None:
        """Close every connection that was opened; one that is used again opens anew."""
        with self._lock:
            for queue in self._queues.values():
                queue.close()


def connect(url: str, *, keys: Keys = NO_KEYS, name: str = "default", **options: Any) -> Queue:
    """A queue on the store at `url`, without any configuration; `options` are the driver's own.

    `ConfigError` for a URL or an option that can't be used, a `DriverError` for a driver that can't.
    """
    return Manager(config.single(url, name=name, options=options), keys=keys).connection()


def _opened(spec: DriverSpec, settings: ConnectionSettings, host: Manager) -> Driver:
    what = f"connection {settings.name!r}: driver {spec.name!r}"
    try:
        driver = spec.open(settings, host)
    except HesapeError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a stranger's driver may raise anything
        text = f"{type(error).__name__}: {error}"
        shown = scrub(text, settings)
        broken = DriverBrokenError(f"{what} could not be opened: {shown}", spec.name)
        broken.__cause__ = error if shown == text else None  # E4: it would carry the password into every traceback
    else:
        if isinstance(driver, Driver):
            return driver
        broken = DriverBrokenError(f"{what} opened a {type(driver).__name__}, expected a hesape.Driver", spec.name)
    raise broken
