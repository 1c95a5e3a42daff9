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


# Where a host's own Python is; the first one that works is used. Its packages are not wanted, so neither are `site` nor its environment.
PYTHONS = ("/usr/bin/python3", "python3")
PYTHON_FLAGS = "-I -S"


def in_python(name: str, arguments: str) -> str:
    """Shell text that runs a Python program of `tui/remote/` where the host has one, and ends with it where that went well.

    Args:
        arguments: shell words.
    """
    return (
        f"for _python in {' '.join(PYTHONS)}; do\n"
        'command -v "$_python" >/dev/null 2>&1 || continue\n'
        f"\"$_python\" {PYTHON_FLAGS} - {arguments} 2>/dev/null <<'EAGLETUI_PROGRAM' && exit 0\n{program(name)}EAGLETUI_PROGRAM\ndone\n"
    )
