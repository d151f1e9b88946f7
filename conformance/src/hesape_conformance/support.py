"""The support table: what reports say of the drivers, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hesape_conformance.engine import Verdict

_CAPABILITIES: Final = ("transactions", "notifications", "session_liveness")
_FACTS: Final = ("durable", "multi_process", "networked")
_HEAD: Final = (
    "driver",
    "tested on",
    "outcome",
    "rules passed",
    "refused as declared",
    "outside declared facts",
    *(word.replace("_", " ") for word in (*_CAPABILITIES, *_FACTS)),
)


def table(reports: Iterable[Mapping[str, Any]]) -> str:
    """A Markdown table with a row a report."""
    rows = [_row(report) for report in reports]
    return "\n".join(f"| {' | '.join(row)} |" for row in (_HEAD, ["---"] * len(_HEAD), *rows))


def _row(report: Mapping[str, Any]) -> list[str]:
    driver = report["driver"]
    counted = Counter(report["verdicts"].values())
    has = {*driver["capabilities"], *driver["facts"]}
    return [
        driver["name"],
        report["environment"]["server"],
        report["outcome"],
        f"{counted[Verdict.PASSED]} of {len(report['verdicts'])}",
        _ids(report, Verdict.REFUSED),
        _ids(report, Verdict.OUTSIDE),
        *("yes" if word in has else "" for word in (*_CAPABILITIES, *_FACTS)),
    ]


def _ids(report: Mapping[str, Any], verdict: Verdict) -> str:
    return ", ".join(rule for rule, found in report["verdicts"].items() if found == verdict)
