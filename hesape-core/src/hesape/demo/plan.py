"""What the demo pushes, and what must become of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Literal

import attrs

import hesape
from hesape.demo import figures, ledger
from hesape.errors import HesapeError
from hesape.jobs import new_id
from hesape.queue import Queue

COUNT: Final = "text.count"
"""The handler's name, and the action that its jobs are authorised for."""
TENANTS: Final = ("harbour", "hillside")
MOST_FILES: Final = 300
LARGEST: Final = 4 * 1024 * 1024
SLOTS: Final = 4
_SPREAD_S: Final = 6.0
"""How long all files together take at least, so that there is something to watch."""
_LONGEST_PAUSE_S: Final = 0.6
_SUFFIXES: Final = frozenset((".txt", ".md", ".rst", ".csv", ".log", ".text"))

Fate = Literal["counted", "parked", "tampered", "forged", "oversized"]


@attrs.frozen(kw_only=True)
class Item:
    """One job of the demo and what must become of it."""

    job: str
    tenant: str
    file: str
    fate: Fate
    figures: figures.Figures | None = None
    stumbles: int = 0
    refusal: str = ""
    """The class of the error with which its push was refused, as it happened."""


class ReadersPolicy:
    """Who may have a text counted: a reader, for files of the reading room."""

    def can(self, subject: hesape.Subject, action: str, resource: object, /) -> bool:
        """Decide."""
        return "reader" in subject.roles and action == COUNT and isinstance(resource, Path)


def texts(folder: Path) -> list[Path]:
    """The text files of a folder, by name."""
    found = [file for file in sorted(folder.iterdir()) if file.is_file() and file.suffix.lower() in _SUFFIXES]
    return [file for file in found if file.stat().st_size <= LARGEST and _is_text(file)][:MOST_FILES]


def _is_text(file: Path) -> bool:
    try:
        str(file).encode()  # a name that isn't UTF-8 fits no payload
        figures.read(file)
    except (UnicodeError, OSError):
        return False
    return True


def push_all(queue: Queue, folder: Path, files: Sequence[Path]) -> list[Item]:
    """Push one job a file, turn about for two tenants, then those that must not run."""
    pause_s = min(_LONGEST_PAUSE_S, _SPREAD_S * SLOTS / len(files))
    items = []
    for number, file in enumerate(files):
        tenant, stumbles = TENANTS[number % len(TENANTS)], int(number == len(files) // 2)
        payload = {"file": str(file), "pause_s": pause_s, "stumbles": stumbles}
        job = queue.push(_grant(tenant, file), _job(tenant, file, payload))
        counted = figures.count(figures.read(file))
        items.append(
            Item(job=job.id, tenant=tenant, file=file.name, fate="counted", figures=counted, stumbles=stumbles)
        )
    return [*items, _push_missing(queue, files[0]), _push_tampered(queue, folder, files[0]), *_refused(queue, files[0])]


def _grant(tenant: str, file: Path) -> hesape.Grant:
    subject = hesape.Subject(id="ada", tenant=tenant, roles=("reader",))
    return hesape.authorize(ReadersPolicy(), subject, COUNT, file)


def _job(tenant: str, file: Path, payload: object, job_id: str | None = None) -> hesape.Job:
    return hesape.Job.new(_grant(tenant, file), COUNT, payload, id=job_id)


def _push_missing(queue: Queue, beside: Path) -> Item:
    tenant, missing = TENANTS[0], beside.with_name("no-such-file.txt")
    job = queue.push(_grant(tenant, missing), _job(tenant, missing, {"file": str(missing)}))
    return Item(job=job.id, tenant=tenant, file=missing.name, fate="parked")


def _push_tampered(queue: Queue, folder: Path, file: Path) -> Item:
    """A job of one tenant that somebody hands to the other, in the database itself."""
    tenant, other = TENANTS
    job = queue.push(_grant(tenant, file), _job(tenant, file, {"file": str(file)}))
    ledger.tamper(folder, job.id, f'"{tenant}"'.encode(), f'"{other}"'.encode())
    return Item(job=job.id, tenant=tenant, file=file.name, fate="tampered")


def _refused(queue: Queue, file: Path) -> list[Item]:
    """Pushes that must not reach the store: one tenant's job under the other's grant, and one that is too large."""
    tenant, other = TENANTS
    forged, oversized = new_id(), new_id()

    def forge() -> None:
        queue.push(_grant(other, file), _job(tenant, file, {"file": str(file)}, forged))

    def oversize() -> None:
        queue.push(_grant(tenant, file), _job(tenant, file, {"file": str(file), "text": "x" * 40_000}, oversized))

    return [
        Item(job=forged, tenant=tenant, file=file.name, fate="forged", refusal=_refusal(forge)),
        Item(job=oversized, tenant=tenant, file=file.name, fate="oversized", refusal=_refusal(oversize)),
    ]


def _refusal(push: Callable[[], None]) -> str:
    try:
        push()
    except HesapeError as error:
        return f"{type(error).__name__}: {error}"
    return ""
