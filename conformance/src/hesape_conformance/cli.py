"""The command: `hesape-conformance run NAME`, `rules`, `verify`, `table`, `bench`, `torture`.

Exit codes of `run`: 0 all rules ran and none failed, 1 one failed, 3 one wasn't run, 4 no harness or bad usage.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from hesape_conformance import catalogue, installed, report, running, support
from hesape_conformance.bench.command import bench
from hesape_conformance.harness import HarnessUnavailableError
from hesape_conformance.running import USAGE
from hesape_conformance.torture.command import torture


@click.group()
@click.version_option(package_name="hesape-conformance")
def main() -> None:
    """Decide what a driver of the Hesape job queue is."""
    click.UsageError.exit_code = USAGE


@main.command()
@click.argument("name")
@click.option("--url", default="", help="The store's address; by default the harness's own.")
@click.option("--report", "report_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the report here.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Write it as a page, too.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write it for a build server, too.")
@click.option("--depth", type=click.Choice([depth.value for depth in catalogue.Depth]), default="default")
@click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random.")
@click.option("--only", multiple=True, metavar="ID", help="Run these rules alone; the run is then incomplete.")
def run(
    name: str,
    url: str,
    report_file: Path | None,
    markdown: Path | None,
    junit: Path | None,
    depth: str,
    seed: int,
    only: tuple[str, ...],
) -> None:
    """Run every rule on the installed driver NAME."""
    unknown = [rule_id for rule_id in only if rule_id not in catalogue.everything()]
    if unknown:
        click.echo(f"no such rule: {', '.join(unknown)}", err=True)
        sys.exit(USAGE)
    try:
        harness = installed.find_harness(name)
    except HarnessUnavailableError as error:
        click.echo(f"no harness: {error}", err=True)
        sys.exit(USAGE)
    order = running.Order(driver=name, url=url, depth=depth, seed=seed, only=only, junit=junit)
    code, found = running.run(order, harness)
    if code == USAGE or found is None:
        sys.exit(USAGE if code == USAGE else 1)
    made = report.build(found, datetime.now(UTC).isoformat(timespec="seconds"))
    if report_file is not None:
        report_file.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if markdown is not None:
        markdown.write_text(report.markdown(made), encoding="utf-8")
    click.echo(report.summary(made))
    sys.exit(report.EXITS[made["outcome"]])


@main.command()
@click.argument("rule_id", required=False)
def rules(rule_id: str | None) -> None:
    """List the rules, or explain one."""
    known = catalogue.everything()
    if rule_id is None:
        for rule in known.values():
            click.echo(f"{rule.id:4} {rule.sentence} ({len(rule.checks)})")
        return
    if rule_id not in known:
        click.echo(f"no such rule: {rule_id}", err=True)
        sys.exit(USAGE)
    rule = known[rule_id]
    click.echo(f"{rule.id}: {rule.sentence}\n")
    for check in rule.checks:
        click.echo(f"  {check.name}: {check.sentence}.")
        if check.capability:
            click.echo(f"    where {check.capability} is claimed; elsewhere its refusal")
        if check.facts:
            click.echo(f"    where {', '.join(sorted(check.facts))} is declared")


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def verify(file: Path) -> None:
    """Check a report against itself and against the installed suite."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        wrong = report.problems(found)
    except (ValueError, AttributeError, TypeError) as error:
        wrong, found = [f"this is no report: {error}"], {}
    for problem in wrong:
        click.echo(problem, err=True)
    if wrong:
        sys.exit(1)
    click.echo(f"{found['driver']['name']}: {found['outcome']}, as this suite would say it")
    sys.exit(report.EXITS[found["outcome"]])


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def table(files: tuple[Path, ...]) -> None:
    """Print reports side by side, as a Markdown table."""
    click.echo(support.table(json.loads(file.read_text(encoding="utf-8")) for file in files))


main.add_command(bench)
main.add_command(torture)

if __name__ == "__main__":
    main()
