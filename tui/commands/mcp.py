"""`eagletui mcp`: the tools for agents without a shell, over standard input and output."""

import click

from tui.core.errors import Slug, UsageError


@click.command()
@click.option("--read-only", is_flag=True, help="Only tools that change nothing.")
def command(read_only: bool) -> int:
    """A server of the Model Context Protocol on standard input and output."""
    try:
        import mcp  # noqa: F401
    except ImportError:
        raise UsageError(
            "the Model Context Protocol is an extra", "pip install 'eagletui[mcp]'", slug=Slug.UNSUPPORTED
        ) from None
    from tui.mcp.server import serve

    serve(read_only=read_only)
    return 0
