"""`hesape completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hesape.cli import output
from hesape.cli.session import Session, command


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command
def completion(session: Session, shell: str) -> None:
    """Print the script that completes hesape's commands, options, connections and queues in SHELL.

    For bash, `source <(hesape completion bash)` in ~/.bashrc; for zsh the same with zsh in ~/.zshrc; for fish,
    `hesape completion fish > ~/.config/fish/completions/hesape.fish`.
    """
    script_of = get_completion_class(shell)
    assert script_of is not None  # noqa: S101 - click has all three
    script = script_of(click.get_current_context().find_root().command, {}, "hesape", "_HESAPE_COMPLETE").source()
    if session.json:
        output.document({"shell": shell, "script": script})
    else:
        click.echo(script)
