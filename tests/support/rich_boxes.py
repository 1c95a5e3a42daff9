"""Tracebacks of a log as rich draws them, by rich itself."""

import io
import linecache
import os
import re
from unittest import mock

from rich.console import Console
from rich.traceback import Frame, Stack, Trace, Traceback

_TRACEBACK = re.compile(
    r"^(?P<before>.*)Traceback \(most recent call last\):\n(?P<frames>(?:[ \t]+.*\n)+)(?P<type>[A-Za-z_][\w.]*)(?:: (?P<said>.*))?\n",
    re.MULTILINE,
)
_FRAME = re.compile(r'  File "([^"]+)", line (\d+), in (\S+)\n(?:    (?!File)(.*)\n)?(?:\s+[\^~]+\n)?')
_MOST_LINES = 50_000  # of a program


def boxed(log: str, width: int = 100, *, plain: bool = False) -> str:
    """The log with its tracebacks in boxes of so many columns; `plain`: of ASCII alone."""

    def draw(found: re.Match[str]) -> str:
        frames = _FRAME.findall(found["frames"])
        if len(frames) != found["frames"].count('  File "') or not frames:
            return found[0]
        head = found["before"].rstrip() + "\n" if found["before"].strip() else ""
        return head + _drawn(frames, found["type"], found["said"] or "", width, plain)

    return _TRACEBACK.sub(draw, log)


def _drawn(frames: list[tuple[str, str, str, str]], kind: str, said: str, width: int, plain: bool) -> str:
    programs: dict[str, list[str]] = {}
    for file, line, _, source in frames:
        if source and int(line) < _MOST_LINES:
            lines = programs.setdefault(file, [])
            lines += ["pass\n"] * (int(line) + 3 - len(lines))
            lines[int(line) - 1] = f"        {source}\n"
    cached = {file: (1, None, lines, file) for file, lines in programs.items()}
    drawn = [Frame(filename=file, lineno=int(line), name=name, line=source) for file, line, name, source in frames]
    stack = Stack(exc_type=kind.rpartition(".")[2], exc_value=said, frames=drawn)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii" if plain else "utf-8", errors="replace", newline="\n")
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    with mock.patch.dict(linecache.cache, cached), mock.patch.object(os.path, "exists", return_value=True):
        console.print(Traceback(Trace(stacks=[stack]), width=width, max_frames=100))
    out.seek(0)
    return out.read()
