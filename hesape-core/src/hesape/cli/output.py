"""What a command prints: tables for people, one JSON document for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

import click

from hesape import times

if TYPE_CHECKING:
    from hesape.failed import FailedJob


class UnwritableError(Exception):
    """Standard output can't be written."""


class Output:
    """Standard output, whose own errors can be told from all others. A reader that has gone stays a broken pipe."""

    def __init__(self, stream: IO[Any]) -> None:
        """Write to `stream`."""
        self._stream = stream

    @property
    def buffer(self) -> Output:
        """The bytes below it."""
        return Output(self._stream.buffer)  # type: ignore[attr-defined]  # of text alone

    def write(self, data: Any) -> int:
        """Write text, or bytes below it."""
        with self._told():
            return self._stream.write(data)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._told():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UnwritableError(error.strerror or str(error)) from error


def silence(stream: TextIO) -> None:
    """Let what is still buffered go nowhere: it must not fail once more at exit."""
    with suppress(OSError, ValueError):
        descriptor = stream.fileno()
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"))
_WIDE: Final = 10_000
"""The width of what isn't a terminal: nothing is cut or wrapped for a program that reads tables."""


def document(data: Any) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(data, default=_plain))


def error(code: str, message: str, *, retryable: bool, as_json: bool) -> None:
    """Print on standard error what went wrong, as a line or as one JSON document."""
    said = {"error": {"code": code, "message": message, "retryable": retryable}}
    click.echo(json.dumps(said) if as_json else f"error[{code}]: {message}", err=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Print a table, numbers to the right, or the line `empty`."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    found = list(rows)
    if not found:
        click.echo(empty)
        return
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = all(isinstance(row[index], int) for row in found)
        shown.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in found:
        shown.add_row(*(Text(printable("" if cell is None else str(cell))) for cell in row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    console.print(shown)


def pairs(facts: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {printable(str(value))}")


def printable(text: str) -> str:
    """Text from a store, without anything that a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def failed_job(job: FailedJob) -> dict[str, Any]:
    """A failed job as JSON values. The payload is the stored text, since reading it as JSON could change numbers."""
    return {
        "id": job.id,
        "name": job.name,
        "display_name": job.display_name,
        "queue": job.queue,
        "tenant": job.tenant,
        "action": job.action,
        "authorized_by": job.authorized_by,
        "payload": job.payload.decode(errors="backslashreplace"),
        "priority": job.priority,
        "attempts": job.attempts,
        "exceptions": job.exceptions,
        "pushed_at": job.pushed_at,
        "failed_at": job.failed_at,
        "last_error": job.last_error,
        "problem": job.problem,
    }


def moment(value: datetime) -> str:
    """A time for people: UTC, to the second."""
    return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def age(since_us: int | None, now_us: int) -> str:
    """How long ago by the store's clock, in its largest unit; empty for never."""
    if since_us is None:
        return ""
    seconds = max(0, now_us - since_us) // 1_000_000
    return next((f"{seconds // size}{unit}" for size, unit in _UNITS if seconds >= size), f"{seconds}s")


def iso(us: int | None) -> str | None:
    """Microseconds since the epoch for machines."""
    return None if us is None else times.from_us(us).isoformat()


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
