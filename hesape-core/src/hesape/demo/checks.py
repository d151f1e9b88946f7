"""Whether what the store says is what must have become of every job."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from hesape.demo.ledger import Entry
from hesape.demo.plan import Item


@attrs.frozen
class Check:
    """One sentence, and whether the store bears it out."""

    name: str
    ok: bool
    text: str


def judge(items: Sequence[Item], entries: Sequence[Entry], killed: Sequence[tuple[int, str]]) -> list[Check]:
    """Compare. `killed` are the processes that were killed, each with the job that it was in the middle of."""
    by_job: dict[str, list[Entry]] = {}
    for entry in entries:
        by_job.setdefault(entry.job, []).append(entry)

    def of(fate: str) -> list[tuple[Item, list[Entry]]]:
        return [(item, by_job.get(item.job, [])) for item in items if item.fate == fate]

    return [
        _counted(of("counted")),
        _recovered(items, by_job, killed),
        _retried([(item, found) for item, found in of("counted") if item.stumbles]),
        _parked(of("parked")),
        _refused(
            "forged", "a job of one tenant that was pushed under the grant of another", "ForgedError", of("forged")
        ),
        _refused("oversized", "a job with 40,000 bytes of payload", "PayloadTooLargeError", of("oversized")),
        _tampered(of("tampered")),
        _nothing_left(items, entries),
    ]


def _counted(wanted: list[tuple[Item, list[Entry]]]) -> Check:
    right = [item for item, found in wanted if len(found) == 1 and _is_right(item, found[0])]
    tenants = sorted({item.tenant for item in right})
    whom = " and ".join(tenants) or "nobody"
    text = f"{len(right)} of {len(wanted)} files were counted, each once and correctly, for {whom}"
    return Check("counted", len(right) == len(wanted) > 0, text)


def _is_right(item: Item, entry: Entry) -> bool:
    facts = (entry.state, entry.tenant, entry.file, entry.figures)
    return facts == ("done", item.tenant, item.file, item.figures)


def _recovered(items: Sequence[Item], by_job: dict[str, list[Entry]], killed: Sequence[tuple[int, str]]) -> Check:
    names = {item.job: item.file for item in items}
    for process, job in killed:
        for entry in by_job.get(job, []):
            if entry.state == "done" and entry.attempt > 1 and process in entry.starts and entry.process != process:
                text = (
                    f"process {process} was killed with -9 in the middle of {names[job]},"
                    f" and process {entry.process} finished it (delivery {entry.attempt})"
                )
                return Check("recovered", ok=True, text=text)
    victims = ", ".join(f"{process} in {names.get(job, job)}" for process, job in killed) or "none"
    return Check("recovered", ok=False, text=f"no job of a killed process was finished by another (killed: {victims})")


def _retried(wanted: list[tuple[Item, list[Entry]]]) -> Check:
    done = [(item, found[0]) for item, found in wanted if len(found) == 1 and found[0].state == "done"]
    right = [(item, entry) for item, entry in done if entry.attempt > item.stumbles]
    if not right or len(right) < len(wanted):
        return Check("retried", ok=False, text="a job that failed once wasn't finished by a retry")
    item, entry = right[0]
    return Check("retried", ok=True, text=f"{item.file} failed at first and was done in delivery {entry.attempt}")


def _parked(wanted: list[tuple[Item, list[Entry]]]) -> Check:
    for item, found in wanted:
        if len(found) == 1 and found[0].state == "failed" and "FileNotFoundError" in (found[0].error or ""):
            text = f"{item.file} was tried {len(found[0].starts)} times and parked: {_first_line(found[0])}"
            return Check("parked", ok=True, text=text)
    return Check("parked", ok=False, text="the job that can't succeed wasn't parked with its reason")


def _refused(name: str, what: str, error: str, wanted: list[tuple[Item, list[Entry]]]) -> Check:
    for item, found in wanted:
        if not found and item.refusal.startswith(f"{error}:"):
            return Check(name, ok=True, text=f"{what} was refused and never stored: {item.refusal}")
    return Check(name, ok=False, text=f"{what} wasn't refused as it must be: {[item.refusal for item, _ in wanted]}")


def _tampered(wanted: list[tuple[Item, list[Entry]]]) -> Check:
    for _, found in wanted:
        if len(found) == 1 and found[0].state == "failed" and (found[0].error or "").startswith("TamperedError:"):
            if found[0].starts:
                return Check("tampered", ok=False, text="a record that was changed in the database was run")
            text = f"a record that was changed in the database was never run, but parked: {_first_line(found[0])}"
            return Check("tampered", ok=True, text=text)
    return Check("tampered", ok=False, text="a record that was changed in the database wasn't recognised")


def _nothing_left(items: Sequence[Item], entries: Sequence[Entry]) -> Check:
    open_ones = [entry for entry in entries if entry.state not in {"done", "failed"}]
    strangers = {entry.job for entry in entries} - {item.job for item in items}
    failed = sum(entry.state == "failed" for entry in entries)
    expected = sum(item.fate in {"parked", "tampered"} for item in items)
    ok = not open_ones and not strangers and failed == expected
    text = f"{len(open_ones)} jobs are left to do, {failed} are in the failed list, {len(strangers)} came from nowhere"
    return Check("nothing left", ok, text)


def _first_line(entry: Entry) -> str:
    return (entry.error or "").partition("\n")[0]
