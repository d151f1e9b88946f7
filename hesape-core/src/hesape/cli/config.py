"""`hesape config show`: what the configuration came to, its secrets masked."""

from __future__ import annotations

from typing import Any

import click

from hesape.cli import output
from hesape.cli.session import Session, command
from hesape.config import Configuration
from hesape.errors import ConfigError
from hesape.masking import mask, masked


@click.group()
def config() -> None:
    """Show the configuration."""


@config.command()
@command
def show(session: Session) -> int:
    """Show the file, the connections, the keys' ids and the worker's defaults. What can't be resolved exits with 1."""
    found = session.configuration
    connections = [_connection(found, name) for name in found.names]
    signing, problem = _signing(found)
    default = session.chosen or found.default
    facts = {
        "file": str(found.file) if found.file else None,
        "folder": str(found.folder),
        "default": found.choose(default) if default else None,
        "connections": connections,
        "signing": signing,
        "worker": dict(found.worker),
    }
    if session.json:
        output.document(facts)
    else:
        _print(facts)
    return int(problem or any("problem" in one for one in connections))


def _connection(found: Configuration, name: str) -> dict[str, Any]:
    try:
        settings = found.settings(name)
    except ConfigError as error:
        return {"name": name, "problem": str(error)}
    options = {key: masked(key, value) for key, value in settings.options.items()}
    return {"name": name, "driver": settings.driver, "url": mask(settings.url), "options": options}


def _signing(found: Configuration) -> tuple[dict[str, Any], bool]:
    try:
        keys = found.keys()
    except ConfigError as error:
        return {"problem": str(error)}, True
    return {"keys": list(keys.secrets), "sealing": keys.sealing, "accept_unsealed": keys.accept_unsealed}, False


def _print(facts: dict[str, Any]) -> None:
    signing = facts["signing"]
    keys = ", ".join(signing.get("keys", ())) or "none"
    sealed = f" (sealing: {signing.get('sealing') or 'none'})" if signing.get("keys") else ""
    output.pairs(
        {
            "file": facts["file"] or "none; the defaults apply",
            "folder": facts["folder"],
            "default": facts["default"] or "not set",
            "signing keys": signing.get("problem") or keys + sealed,
            "worker": ", ".join(f"{key} = {value!r}" for key, value in facts["worker"].items()) or "the defaults",
        }
    )
    rows = [
        (
            one["name"],
            one.get("driver", ""),
            one.get("problem") or one["url"],
            ", ".join(f"{key} = {value!r}" for key, value in one.get("options", {}).items()),
        )
        for one in facts["connections"]
    ]
    output.table(("connection", "driver", "url", "options"), rows, empty="no connections")
