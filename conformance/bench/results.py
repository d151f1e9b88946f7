"""The reports that the runs left, as values."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from hesape_conformance.bench.report import Report

STORES = ("postgres", "sqlite", "redis", "mysql")


def read(folder: Path, name: str) -> Any:
    """One file of the folder; nothing when it isn't there or a run ended before it was written."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8") or "null") if path.exists() else None


def reports(folder: Path) -> list[Report]:
    """Every store's report."""
    return [Report.from_dict(found) for store in STORES if (found := read(folder, store))]


def peer_runs(folder: Path) -> dict[str, Any]:
    """By store: what was run beside what."""
    return {store: found for store in STORES if (found := read(folder, f"peers-{store}"))}


def peers(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """By store and library the median of each figure, and how many jobs were lost and doubled."""
    return {
        store: {
            library["name"]: {
                **{key: statistics.median(values) for key, values in library["figures"].items() if values},
                "lost": library["lost"],
                "doubled": library["doubled"],
            }
            for library in found["libraries"]
        }
        for store, found in peer_runs(folder).items()
    }
