"""`hesape demo`: everything once, on real files, with real worker processes."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hesape.cli import output
from hesape.errors import ArgumentInvalidError

if TYPE_CHECKING:
    from hesape.demo.run import Outcome, Watching


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON document.")
def demo(folder: Path | None, as_json: bool) -> int:  # noqa: FBT001 - click passes it by name
    """Count the text files of FOLDER, by default of a bundled sample, as jobs of two tenants.

    Real worker processes do it. One of them is killed in the middle of a job, one job fails at first, one always, and
    three are refused. What became of everything is read from the store by one query; the exit code is 1 unless all of
    it is as it must be. It needs no server and no configuration, and leaves nothing behind.
    """
    from hesape.demo import plan
    from hesape.demo.run import LOG, run

    source = (folder or Path(plan.__file__).with_name("texts")).absolute()
    files = plan.texts(source)
    if not files:
        message = f"{source} has no text files; expected some *.txt or *.md in UTF-8"
        raise ArgumentInvalidError(message)
    work = Path(tempfile.mkdtemp(prefix="hesape-demo-"))
    with _watching(quiet=as_json) as watching:
        outcome = run(work, files, watching)
    if as_json:
        output.document(_plain(outcome, source))
    else:
        _show(outcome, source)
    if outcome.ok:
        shutil.rmtree(work, ignore_errors=True)
        return 0
    log = (work / LOG).read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
    click.echo("\n".join(("The workers said at last:", *log, f"The store and the whole log are in {work}")), err=True)
    return 1


@contextmanager
def _watching(*, quiet: bool) -> Iterator[Watching]:
    from hesape.demo.run import Watching

    if quiet:
        yield Watching()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(highlight=False, markup=False)
    columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("jobs", total=None)

        class Shown(Watching):
            def say(self, line: str) -> None:
                progress.console.print(f"  {line}")

            def progress(self, done: int, total: int) -> None:
                progress.update(bar, completed=done, total=total)

        yield Shown()


def _show(outcome: Outcome, source: Path) -> None:
    click.echo(f"\nWhat the store says about the files of {source}:")
    rows = [
        (entry.tenant, entry.file, entry.figures.words, entry.figures.longest, entry.attempt, entry.process)
        for entry in sorted(outcome.entries, key=lambda entry: (entry.tenant, entry.file or ""))
        if entry.figures is not None
    ]
    columns = ("tenant", "file", "words", "longest word", "delivery", "process")
    output.table(columns, rows, empty="  nothing was counted")
    for check in outcome.checks:
        click.echo(f"  {'yes' if check.ok else 'NO '}  {output.printable(check.text)}")
    failed = [check.name for check in outcome.checks if not check.ok]
    verdict = f"not as it must be: {', '.join(failed)}" if failed else "everything is as it must be"
    click.echo(f"\n{len(outcome.checks) - len(failed)} of {len(outcome.checks)}: {verdict}, in {outcome.took_s:.1f} s")
    sys.stdout.flush()


def _plain(outcome: Outcome, source: Path) -> dict[str, Any]:
    return {
        "ok": outcome.ok,
        "folder": str(source),
        "took_s": round(outcome.took_s, 3),
        "checks": [{"name": check.name, "ok": check.ok, "text": check.text} for check in outcome.checks],
        "jobs": [
            {
                "id": entry.job,
                "state": entry.state,
                "tenant": entry.tenant,
                "file": entry.file,
                "deliveries": entry.attempt,
                "process": entry.process,
                "started_by": list(entry.starts),
                "figures": None if entry.figures is None else entry.figures._asdict(),
                "error": None if entry.error is None else entry.error.partition("\n")[0],
            }
            for entry in outcome.entries
        ],
    }
