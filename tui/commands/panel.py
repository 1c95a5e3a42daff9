"""`eagletui [HOST]...`: the panel, of several hosts with an overview of them."""

import difflib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tui.commands import completing
from tui.core.errors import Slug, UsageError
from tui.core.text import one_line
from tui.panel.host_names import known_hosts


@click.command(hidden=True)
@click.argument("hosts", nargs=-1, metavar="", shell_complete=completing.hosts)
@click.pass_context
def command(ctx: click.Context, hosts: tuple[str, ...]) -> int:
    """Open the panel on hosts."""
    group = ctx.parent.command if ctx.parent is not None else None
    if isinstance(group, click.Group) and ctx.info_name != "panel":
        _raise_if_commands(hosts, group.list_commands(ctx))
    return open_panel(hosts, ctx.obj)


def _raise_if_commands(hosts: Sequence[str], commands: Sequence[str]) -> None:
    """Raises UsageError where a word that is taken for a host is, or most likely should be, a command."""
    if behind := set(hosts[1:]) & set(commands):
        word = min(behind)
        raise UsageError(f"{word} is a command, not a host", f"eagletui {word} {hosts[0]}", slug=Slug.USAGE)
    meant = difflib.get_close_matches(hosts[0], commands, n=1, cutoff=0.75)
    # Hosts have digits and dots in their names, commands have none.
    if meant and hosts[0].replace("-", "").isalpha() and hosts[0] not in dict(known_hosts()):
        name = one_line(hosts[0], 60)
        raise UsageError(
            f"{name} is neither a command nor a host of yours",
            f"did you mean eagletui {meant[0]}? A host of that name: eagletui panel {shlex.quote(name)}",
            slug=Slug.USAGE,
        )


def open_panel(hosts: Sequence[str], directory: Path | None, *, everywhere: bool = False) -> int:
    """The panel on hosts, or the default one. Raises UsageError where there is no terminal to draw on."""
    # It is drawn on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the panel needs a terminal", "for scripts there are eagletui launch, ps, wait, logs", slug=Slug.NO_TERMINAL
        )
    from tui.commands.several import hosts_of

    names = hosts_of(hosts, everywhere)
    from tui.panel.app import run_panel

    return run_panel(names, directory)
