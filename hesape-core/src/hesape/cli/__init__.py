"""The command line: one file a group of commands, each loaded when it is called."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hesape` and return its exit code: 0 done, 1 failure, 2 usage, 12 memory."""
    from hesape.cli.root import run

    return run(argv)
