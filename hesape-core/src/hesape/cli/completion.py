"""`hesape completion`: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from hesape.cli import output
from hesape.cli.session import Session, command


class _Bash(BashComplete):
    """Bash splits words at `:` and `=`, and replaces what stands after the last of them: click knows neither."""

    source_template = (
        BashComplete.source_template
        + """
%(complete_func)s_joined() {
    local word before rest=$COMP_LINE
    local -a words
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ $rest != [[:space:]]* && ( $word == [:=]* || ${words[-1]} == *[:=] ) ]]; then
            before=${words[-1]}
            words[-1]+=$word
        else
            before=
            words+=("$word")
        fi
        rest=${rest#*"$word"}
    done
    if [[ $word == *[:=] ]]; then
        before=${words[-1]}
    fi
    before=${before##*=}
    local -a COMP_WORDS=("${words[@]}")
    local COMP_CWORD=$((${#words[@]} - 1))
    %(complete_func)s "$@"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
}

complete -o nosort -F %(complete_func)s_joined %(prog_name)s
"""
    )


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command
def completion(session: Session, shell: str) -> None:
    """Print the script that completes hesape's commands, options, connections and queues in SHELL.

    For bash, `source <(hesape completion bash)` in ~/.bashrc; for zsh the same with zsh in ~/.zshrc; for fish,
    `hesape completion fish > ~/.config/fish/completions/hesape.fish`.
    """
    script_of = _Bash if shell == "bash" else get_completion_class(shell)
    assert script_of is not None  # noqa: S101 - click has all three
    script = script_of(click.get_current_context().find_root().command, {}, "hesape", "_HESAPE_COMPLETE").source()
    if session.json:
        output.document({"shell": shell, "script": script})
    else:
        click.echo(script)
