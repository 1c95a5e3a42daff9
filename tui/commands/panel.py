"""`eagletui [HOST]...`: the panel, of several hosts with an overview of them."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tui.core.errors import Slug, UsageError


@click.command(hidden=True)
@click.argument("hosts", nargs=-1, metavar="")
@click.pass_context
def command(ctx: click.Context, hosts: tuple[str, ...]) -> int:
    """Open the panel on hosts."""
    group = ctx.parent.command if ctx.parent is not None else None
    if isinstance(group, click.Group) and (behind := set(hosts[1:]) & set(group.list_commands(ctx))):
        word = min(behind)
        raise UsageError(f"{word} is a command, not a host", f"eagletui {word} {hosts[0]}", slug=Slug.USAGE)
    return open_panel(hosts, ctx.obj)


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
