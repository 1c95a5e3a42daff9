"""`eagletui completion SHELL`: the script that makes the shell complete hosts, profiles, runs and flags."""

import click
from click.shell_completion import get_completion_class, shell_complete

VARIABLE = "_EAGLETUI_COMPLETE"
_INTO = {
    "bash": "~/.local/share/bash-completion/completions/eagletui",
    "zsh": "a file _eagletui in a directory of $fpath",
    "fish": "~/.config/fish/completions/eagletui.fish",
}


@click.command(epilog="  ".join(f"{shell}: into {place}." for shell, place in _INTO.items()))
@click.argument("shell", type=click.Choice(list(_INTO)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Completion of hosts, profiles, runs and flags for bash, zsh or fish: prints the shell's script."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(ctx.find_root().command, {}, "eagletui", VARIABLE).source()
    if shell == "zsh":
        source = source.strip()
    print(source)
    return 0


def complete(cli: click.Command, asked: str) -> int:
    """Answers the shell's script: what may stand where the cursor is."""
    return shell_complete(cli, {}, "eagletui", VARIABLE, asked)
