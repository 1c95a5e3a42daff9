"""`eagletui demo`: the panel on the simulated host, or on both."""

from pathlib import Path

import click

from tui.commands.panel import open_panel
from tui.core.config import DEMO_HOSTS


@click.command()
@click.option(
    "--hosts", "count", type=click.IntRange(1, len(DEMO_HOSTS)), default=1, help="How many; 2 show the overview."
)
@click.pass_obj
def command(directory: Path | None, count: int) -> int:
    """Open the panel on a simulated host with eight GPUs."""
    return open_panel(DEMO_HOSTS[:count], directory)
