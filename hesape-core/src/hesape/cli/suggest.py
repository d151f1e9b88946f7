"""What a shell may complete: names out of the configuration. No store is opened for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hesape import config
from hesape.errors import HesapeError
from hesape.jobs import DEFAULT_QUEUE

if TYPE_CHECKING:
    import click

    from hesape.config import Configuration


def connections(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The configured connections."""
    found = _configuration(ctx)
    return [name for name in found.names if name.startswith(incomplete)] if found else []


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The queues that `[worker]` names, and the default one."""
    found = _configuration(ctx)
    return [name for name in _known(found) if name.startswith(incomplete)] if found else []


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The same queues; of another connection once its name stands before, unless `--connection` names one."""
    found = _configuration(ctx)
    if found is None:
        return []
    connection, colon, _ = incomplete.partition(":")
    named = not connection or (connection in found.tables and ctx.params.get("chosen") is None)
    before = connection + colon if colon and named else ""
    return [before + name for name in _known(found) if (before + name).startswith(incomplete)]


def _known(found: Configuration) -> list[str]:
    named = (part.partition("=")[0].strip() for part in found.worker.get("queue", "").split(","))
    return sorted({DEFAULT_QUEUE, *filter(None, named)})


def _configuration(ctx: click.Context) -> Configuration | None:
    try:
        return config.load(ctx.params.get("file"))
    except HesapeError:  # the command itself will say what is wrong
        return None
