"""Plugins: drivers and observers, loaded one at a time, when their name is used (N1, N2).

`hesape.discovery` finds what is installed; pluggy registers one plugin here and checks its hooks. What goes wrong is
kept as a value and raised only for whoever asks for that very name. Hooks carry no secret and take no decision: none
stands where a grant is checked.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import attrs
import pluggy

from hesape.config import canonical
from hesape.discovery import BLOCK_VARIABLE, DRIVERS, OBSERVERS, WHAT, Catalogue, Offer
from hesape.driver import CONTRACT, Capability, DriverSpec, Fact
from hesape.errors import ConfigError, DriverBlockedError, DriverBrokenError, DriverError, DriverIncompatibleError

__all__ = ["Found", "Plugins", "add_observer", "hookimpl", "installed", "notify", "observed"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
hookimpl = pluggy.HookimplMarker("hesape")
"""Marks a plugin's hook."""
_hookspec = pluggy.HookspecMarker("hesape")


class DriverHooks:
    """What an entry of `hesape.drivers` implements."""

    @_hookspec
    def hesape_register_driver(self) -> DriverSpec:  # type: ignore[empty-body]
        """Describe one driver.

        Called once, when the driver's name is first used. It opens no connection, reads no environment and imports no
        client library: a driver that isn't used must cost nothing and can't fail.
        """


class ObserverHooks:
    """What an entry of `hesape.plugins` implements."""

    @_hookspec
    def hesape_event(self, event: object) -> None:
        """Learn what happened, after the fact: one of the values of `hesape.events`.

        An event holds ids, names, queue, tenant, durations and error classes; never a payload, a grant or a URL.
        Called where it happened, so return quickly. What it raises is logged and goes no further.
        """


_HOOKS = {DRIVERS: DriverHooks, OBSERVERS: ObserverHooks}


@attrs.frozen
class Found:
    """What became of one name: the driver's spec, or the problem."""

    name: str
    kind: str
    """`driver` or `observer`."""
    distributions: tuple[str, ...]
    """The distributions that offer it, with their versions."""
    spec: DriverSpec | None = None
    problem: DriverError | ConfigError | None = None


class Plugins:
    """What is installed. Reading it loads nothing; asking for a name loads that one."""

    def __init__(self, *, environ: Mapping[str, str] | None = None, path: Sequence[str] | None = None) -> None:
        """Look at the distributions of `path`, by default of `sys.path`, under the variables of `environ`."""
        self._catalogue = Catalogue(os.environ if environ is None else environ, path)
        self._loaded: dict[tuple[str, str], object] = {}
        self._observers: tuple[pluggy.PluginManager, ...] | None = None
        self._lock = threading.RLock()

    @property
    def names(self) -> list[str]:
        """The drivers that installed distributions offer and nobody blocks, loaded or not."""
        return self._catalogue.names

    def driver(self, name: str) -> DriverSpec:
        """Load one driver, or raise the `DriverError` that says why it can't be used."""
        return self._once(DRIVERS, canonical(name), _read_spec)

    def look(self) -> list[Found]:
        """Load everything, one at a time; what can't be used comes with its problem. Never raises."""
        return [self._look(group, name) for group in WHAT for name in sorted(self._catalogue.offers[group])]

    def observers(self) -> tuple[pluggy.PluginManager, ...]:
        """The observers, loaded at the first call; a broken one is logged and left out."""
        if self._observers is None:
            with self._lock:
                if self._observers is None:
                    self._observers = tuple(self._load_observers())
        return self._observers

    def add_observer(self, plugin: object) -> Callable[[], None]:
        """Let `plugin`, an object or module with a `hesape_event` hook, learn of events; returns what ends that."""
        manager = _register(plugin, OBSERVERS, repr(plugin))
        with self._lock:
            self._observers = (*self.observers(), manager)
        return functools.partial(self._remove_observer, manager)

    def notify(self, event: object) -> None:
        """Tell every observer; what one raises is logged, and the others are told all the same."""
        for manager in self.observers():
            try:
                manager.hook.hesape_event(event=event)
            except (Exception, SystemExit):
                logger.exception("an observer failed at %s", type(event).__name__)

    def _remove_observer(self, manager: pluggy.PluginManager) -> None:
        with self._lock:
            self._observers = tuple(known for known in self.observers() if known is not manager)

    def _load_observers(self) -> Iterable[pluggy.PluginManager]:
        for name in sorted(self._catalogue.offers[OBSERVERS]):
            try:
                yield self._once(OBSERVERS, name, _load_observer)
            except DriverBlockedError:
                logger.info("observer %r is blocked by %s", name, BLOCK_VARIABLE)
            except DriverError as error:
                logger.warning("%s", error)

    def _look(self, group: str, name: str) -> Found:
        found = Found(name, WHAT[group], tuple(map(str, self._catalogue.offers[group][name])))
        try:
            if group == DRIVERS:
                return attrs.evolve(found, spec=self.driver(name))
            self._once(group, name, _load_observer)
        except (DriverError, ConfigError) as error:
            return attrs.evolve(found, problem=error)
        return found

    def _once(self, group: str, name: str, load: Callable[[Offer], T]) -> T:
        with self._lock:
            found = self._loaded.get((group, name))
            if found is None:
                try:
                    found = _attempt(self._catalogue.choose(group, name), group, load)
                except (DriverError, ConfigError) as error:
                    found = error
                self._loaded[group, name] = found
        if isinstance(found, DriverError | ConfigError):
            raise found.with_traceback(None)
        return found  # type: ignore[return-value]  # what `load` returned for this very key


@functools.cache
def installed() -> Plugins:
    """What is installed for this process."""
    return Plugins()


def notify(event: object) -> None:
    """Tell every observer of this process."""
    installed().notify(event)


def observed() -> bool:
    """Whether anybody observes: without, no event needs to be made."""
    return bool(installed().observers())


def add_observer(plugin: object) -> Callable[[], None]:
    """As `Plugins.add_observer`, for this process."""
    return installed().add_observer(plugin)


def _attempt(offer: Offer, group: str, load: Callable[[Offer], T]) -> T:
    try:
        return load(offer)
    except DriverError:
        raise
    except (Exception, SystemExit) as error:
        message = f"{WHAT[group]} {offer.name!r} from {offer} could not be loaded: {type(error).__name__}: {error}"
        raise DriverBrokenError(message, offer.name, offer.distribution) from error


def _register(plugin: object, group: str, name: str) -> pluggy.PluginManager:
    """A manager of this plugin alone, so that nothing of another depends on it. Unknown hooks and arguments raise."""
    manager = pluggy.PluginManager("hesape")
    manager.add_hookspecs(_HOOKS[group])
    manager.register(plugin, name)
    manager.check_pending()
    if not manager.get_hookcallers(plugin):
        hook = "hesape_register_driver" if group == DRIVERS else "hesape_event"
        message = f"it has no hook {hook} marked with hesape.plugins.hookimpl"
        raise TypeError(message)
    return manager


def _load_observer(offer: Offer) -> pluggy.PluginManager:
    return _register(offer.entry_point.load(), OBSERVERS, offer.name)


def _read_spec(offer: Offer) -> DriverSpec:
    manager = _register(offer.entry_point.load(), DRIVERS, offer.name)
    answers = manager.hook.hesape_register_driver()
    spec = answers[0] if answers else None
    if not isinstance(spec, DriverSpec):
        message = f"hesape_register_driver() returned {type(spec).__name__}, expected hesape.DriverSpec"
        raise TypeError(message)
    _check_contract(spec, offer)
    if spec.name != offer.name:
        message = f"its spec is named {spec.name!r}, its entry point {offer.name!r}"
        raise ValueError(message)
    for claim in (*spec.capabilities, *spec.facts):
        if not isinstance(claim, Capability | Fact):
            message = f"its spec claims {claim!r}, which this version doesn't know"
            raise TypeError(message)
    return spec


def _check_contract(spec: DriverSpec, offer: Offer) -> None:
    major, minor = spec.contract
    if major == CONTRACT[0]:
        return
    core = f"hesape-core {importlib.metadata.version('hesape-core')}"
    older = offer.distribution if major < CONTRACT[0] else "hesape-core"
    message = (
        f"driver {offer.name!r} from {offer} speaks contract {major}.{minor}; "
        f"this {core} speaks {CONTRACT[0]}.{CONTRACT[1]}. Upgrade {older}"
    )
    raise DriverIncompatibleError(message, offer.name, offer.distribution)
