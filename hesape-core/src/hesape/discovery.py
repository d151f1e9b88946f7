"""What installed distributions offer by entry point, and which offer of a name is used. Nothing is loaded here (N2).

Our own walk groups offers by name before anything is loaded, so that two packages that claim one name are seen, and a
broken package can't hide or stop another.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import attrs

from hesape.config import canonical, nearest
from hesape.errors import (
    ConfigError,
    DriverBlockedError,
    DriverConflictError,
    DriverError,
    DriverNotInstalledError,
    DriverUnknownError,
)

logger = logging.getLogger(__name__)

DRIVERS: Final = "hesape.drivers"
"""The entry-point group of drivers; the entry's name is the driver's name and its URL scheme."""
OBSERVERS: Final = "hesape.plugins"
"""The entry-point group of observers."""
BLOCK_VARIABLE: Final = "HESAPE_BLOCK"
"""Names or distributions that aren't to be loaded, divided by commas."""
PIN_VARIABLE: Final = "HESAPE_DRIVERS"
"""NAME=DISTRIBUTION, divided by commas: from whom to take a driver that several offer."""
OFFICIAL: Final = MappingProxyType(
    {
        **dict.fromkeys(("memory", "sqlite", "failover", "sync", "deferred", "background", "null"), "hesape-core"),
        "postgres": "hesape-postgres",
        "mysql": "hesape-mysql",
        "redis": "hesape-redis",
    }
)
"""Which package has which of our drivers, so that an error can name what to install. None is imported for that."""
WHAT: Final = MappingProxyType({DRIVERS: "driver", OBSERVERS: "observer"})


@attrs.frozen
class Offer:
    """One entry point of an installed distribution."""

    name: str
    distribution: str
    version: str
    entry_point: importlib.metadata.EntryPoint = attrs.field(repr=False)

    def __str__(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}"


class Catalogue:
    """Every offer by name, and the variables that block or choose among them. Read once, when it is first asked."""

    def __init__(self, environ: Mapping[str, str], path: Sequence[str] | None = None) -> None:
        """Look at the distributions of `path`, by default of `sys.path`."""
        self._environ = environ
        self._path = path

    @functools.cached_property
    def offers(self) -> Mapping[str, Mapping[str, list[Offer]]]:
        """The offers of both groups, by name."""
        return _walk(importlib.metadata.distributions(path=list(sys.path if self._path is None else self._path)))

    @property
    def names(self) -> list[str]:
        """The drivers that are offered and not blocked."""
        return sorted(name for name, offers in self.offers[DRIVERS].items() if self._allowed(name, offers))

    def choose(self, group: str, name: str) -> Offer:
        """The one offer of a name, else the error that says what stands in the way."""
        offers, what = self.offers[group].get(name, []), WHAT[group]
        if not offers:
            raise self._missing(name)
        allowed = self._allowed(name, offers)
        if not allowed:
            value = self._environ[BLOCK_VARIABLE]
            message = f"{what} {name!r} from {offers[0]} is blocked by {BLOCK_VARIABLE}={value}; take it out to use it"
            raise DriverBlockedError(message, name, offers[0].distribution)
        chosen = self._pinned(name, allowed) if group == DRIVERS else allowed
        if len(chosen) > 1:
            raise self._conflict(group, name, chosen)
        return chosen[0]

    def _allowed(self, name: str, offers: Iterable[Offer]) -> list[Offer]:
        blocked = {_normal(word) for word in self._environ.get(BLOCK_VARIABLE, "").split(",")}
        return [] if _normal(name) in blocked else [o for o in offers if _normal(o.distribution) not in blocked]

    def _pinned(self, name: str, offers: list[Offer]) -> list[Offer]:
        wanted = _pins(self._environ.get(PIN_VARIABLE, "")).get(name)
        if wanted is None:
            return offers
        if found := [offer for offer in offers if _normal(offer.distribution) == _normal(wanted)]:
            return found
        others = ", ".join(map(str, offers))
        message = f"{PIN_VARIABLE} takes the driver {name!r} from {wanted}, which offers none (offered by {others})"
        raise DriverNotInstalledError(message, name, wanted)

    def _conflict(self, group: str, name: str, offers: Iterable[Offer]) -> DriverConflictError:
        claimed = sorted(offers, key=str)
        ours = next((o for o in claimed if o.distribution == OFFICIAL.get(name)), claimed[0]).distribution
        remedy = f"{PIN_VARIABLE}={name}={ours}" if group == DRIVERS else f"{BLOCK_VARIABLE}={ours}"
        names = " and ".join(map(str, claimed))
        message = f"{WHAT[group]} name {name!r} is claimed by {names}; neither is used. Uninstall one, or set {remedy}"
        return DriverConflictError(message, name)

    def _missing(self, name: str) -> DriverError:
        here = f"(installed here: {', '.join(self.names) or 'none'})"
        if name in OFFICIAL:
            package = OFFICIAL[name]
            message = f"no driver named {name!r} is installed; install it with: pip install {package} {here}"
            return DriverNotInstalledError(message, name, package)
        hint = nearest(name, {*self.names, *OFFICIAL})
        return DriverUnknownError(f"no driver named {name!r}{hint} {here}", name)


def _walk(distributions: Iterable[importlib.metadata.Distribution]) -> dict[str, dict[str, list[Offer]]]:
    """What is offered, by group and name. Of two copies of a distribution the first on the path counts."""
    found: dict[str, dict[str, list[Offer]]] = {DRIVERS: {}, OBSERVERS: {}}
    seen: set[str] = set()
    for distribution in distributions:
        try:
            offers = _offered(distribution)
        except Exception as error:  # noqa: BLE001 - damaged metadata harms nobody else
            logger.warning("the entry points of a distribution can't be read: %s: %s", type(error).__name__, error)
            continue
        if offers and _normal(offers[0][1].distribution) not in seen:
            seen.add(_normal(offers[0][1].distribution))
            for group, offer in offers:
                found[group].setdefault(offer.name, []).append(offer)
    return found


def _offered(distribution: importlib.metadata.Distribution) -> list[tuple[str, Offer]]:
    text = distribution.read_text("entry_points.txt")
    if not text or "hesape." not in text:  # most distributions: their metadata needn't be parsed
        return []
    name, version = distribution.metadata["Name"], distribution.version
    return [
        (entry.group, Offer(entry.name, name, version, entry))
        for entry in distribution.entry_points
        if entry.group in WHAT
    ]


def _pins(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    for name, _, distribution in pairs:
        if not name.strip() or not distribution.strip():
            raise ConfigError(f"{PIN_VARIABLE}={text}: expected NAME=DISTRIBUTION, several divided by commas")
    return {canonical(name.strip()): distribution.strip() for name, _, distribution in pairs}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).strip().lower()
