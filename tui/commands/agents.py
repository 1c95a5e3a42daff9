"""`eagletui agents`: the page that an agent with a shell reads once."""

from importlib import resources

import click


@click.command()
def command() -> int:
    """One page for agents: the loop, JSON, exit codes."""
    print(resources.files("tui.data").joinpath("agents.md").read_text(encoding="utf-8"), end="")
    return 0
