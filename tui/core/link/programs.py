"""The programs that are sent to a host and run there (`tui/remote/`), as text."""

from functools import cache
from importlib import resources


@cache
def program(name: str) -> str:
    """The text of a file of `tui/remote/`."""
    return resources.files("tui.remote").joinpath(name).read_text(encoding="utf-8")


@cache
def shell_program(name: str) -> str:
    """A shell program without comments and indentation, which halves what each call sends."""
    lines = (line.strip(" ") for line in program(name).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("#")) + "\n"
