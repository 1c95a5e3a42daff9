"""`eagletui demo`: the panel on the simulated host."""

from pathlib import Path

import click

from tui.commands.panel import open_panel
from tui.core.config import DEMO_HOST


@click.command()
@click.pass_obj
def command(directory: Path | None) -> int:
    """Open the panel on a simulated host with eight GPUs."""
    return open_panel(DEMO_HOST, directory)
