"""`hesape drivers`: what is installed, loaded one at a time, problems among it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hesape import plugins
from hesape.cli import output
from hesape.cli.session import Session, command
from hesape.errors import DriverBlockedError, HesapeError

if TYPE_CHECKING:
    from hesape.plugins import Found


@click.command()
@command
def drivers(session: Session) -> int:
    """List the installed drivers and observers. With a problem the exit code is 1; a block is none."""
    found = plugins.installed().look()
    if session.json:
        output.document({"plugins": [_facts(one) for one in found]})
    else:
        columns = ("name", "kind", "from", "contract", "capabilities", "facts", "summary")
        output.table(columns, [_row(one) for one in found], empty="no driver is installed")
        for one in found:
            if one.problem is not None:
                click.echo(output.printable(f"error[{one.problem.code}]: {one.problem}"), err=True)
    return int(any(_is_wrong(one) for one in found))


def _is_wrong(found: Found) -> bool:
    return found.problem is not None and not isinstance(found.problem, DriverBlockedError)


def _facts(found: Found) -> dict[str, Any]:
    spec, problem = found.spec, found.problem
    return {
        "name": found.name,
        "kind": found.kind,
        "distributions": list(found.distributions),
        "contract": list(spec.contract) if spec else None,
        "summary": spec.summary if spec else None,
        "capabilities": sorted(spec.capabilities) if spec else None,
        "facts": sorted(spec.facts) if spec else None,
        "problem": {"code": problem.code, "message": str(problem)} if isinstance(problem, HesapeError) else None,
    }


def _row(found: Found) -> tuple[object, ...]:
    spec, where = found.spec, ", ".join(found.distributions)
    if spec is None:
        return found.name, found.kind, where, "", "", "", found.problem.code if found.problem else ""
    contract = ".".join(map(str, spec.contract))
    return (
        found.name,
        found.kind,
        where,
        contract,
        ", ".join(sorted(spec.capabilities)),
        ", ".join(sorted(spec.facts)),
        spec.summary,
    )
