"""`eagletui [HOST]`: the panel."""

import sys
from pathlib import Path

import click

from tui.core.errors import Slug, UsageError


@click.command(hidden=True)
@click.argument("host", metavar="")
@click.pass_obj
def command(directory: Path | None, host: str) -> int:
    """Open the panel on a host."""
    return open_panel(host, directory)


def open_panel(host: str | None, directory: Path | None) -> int:
    """The panel on a host, or the default one. Raises UsageError where there is no terminal to draw on."""
    # It is drawn on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the panel needs a terminal", "for scripts there are eagletui launch, ps, wait, logs", slug=Slug.NO_TERMINAL
        )
    from tui.core.config import default_host

    name = host or default_host()
    from tui.panel.app import run_panel

    return run_panel(name, directory)
