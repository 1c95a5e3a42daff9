"""`eagletui bench`: the group; `eagletui bench NAME` is `tui.commands.measure`."""

import click

from tui.commands.lazy import LazyGroup
from tui.core.errors import Slug, UsageError
from tui.core.hints import Action, Hint


@click.group(
    cls=LazyGroup,
    lazy={
        "verify": "Hold the load generator against SGLang's own benchmark, alternately on one server.",
        "aa": "The host's own noise: the launch profile NAME against itself, on real launches.",
    },
    otherwise="measure",
    called="NAME",
    invoke_without_command=True,
    subcommand_metavar="NAME [OPTIONS] | COMMAND [ARGS]...",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Measure a running server with the bench profile NAME; `eagletui bench NAME --help` has the options."""
    if ctx.invoked_subcommand is None:
        raise UsageError("which bench profile?", Hint(Action.LIST_PROFILES), slug=Slug.UNKNOWN_PROFILE)
