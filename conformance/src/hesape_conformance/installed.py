"""The harnesses that are installed."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from hesape.discovery import DRIVERS, Catalogue
from hesape_conformance.harness import GROUP, HarnessUnavailableError

if TYPE_CHECKING:
    from hesape_conformance.harness import Harness


def owner_of(driver: str) -> tuple[str, str]:
    """Name and version of the distribution that offers a driver; what is known of one that isn't installed."""
    offers = Catalogue({}).offers[DRIVERS].get(driver, [])
    return (offers[0].distribution, offers[0].version) if offers else ("not installed", "unknown")


def names() -> list[str]:
    """The drivers that offer a harness."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def find_harness(driver: str) -> type[Harness]:
    """The class of a driver's harness; `HarnessUnavailableError` says what is installed, or why it can't be loaded."""
    points = [point for point in entry_points(group=GROUP) if point.name == driver]
    if len(points) != 1:
        known = ", ".join(names()) or "none"
        message = f"{len(points)} harnesses are installed for the driver {driver!r}, expected 1 (installed: {known})"
        raise HarnessUnavailableError(message)
    try:
        found: type[Harness] = points[0].load()
    except Exception as error:
        message = f"the harness {points[0].value} of {driver!r} can't be loaded: {type(error).__name__}: {error}"
        raise HarnessUnavailableError(message) from error
    return found
