"""The command line as a function: a command of eagletui in a process of its own, its JSON document and its exit code."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tui.core.errors import Slug
from tui.core.text import one_line

_LINE_LIMIT = 64 << 20  # of a document: all results ever, each with its record
_END_S = 10.0  # so long may a command that is given up take to say what goes on


@dataclass(frozen=True)
class Answer:
    """What a command said: its document, of one that says a line each a list. Exit codes are those of the README."""

    code: int
    document: Any

    @property
    def failed(self) -> bool:
        """Whether it says what is wrong with the question or the host, and not what was asked for."""
        return self.code not in (0, 1, 4) or (
            isinstance(self.document, dict) and self.code == 1 and _bad(self.document)
        )


def _bad(document: dict[str, Any]) -> bool:
    """An error, and not a record that says what came of something: only errors have a hint, if an empty one."""
    return bool(document.get("error")) and "message" in document and "hint" in document


async def ask(*words: str, progress: Callable[[str], None] | None = None) -> Answer:
    """Carries out `eagletui WORDS --json`. Nothing can be asked back: a question is answered no, and the answer says so.

    Args:
        progress: takes the lines that the command says of how far it is.

    A task that is cancelled interrupts the command; what runs on the host keeps running.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tui", *words, "--json"),  # nothing of the directory that the agent works in
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LINE_LIMIT,
            env={**os.environ, "TERM": "dumb"},
        )
    except (OSError, ValueError) as error:  # a text that is longer than an argument may be, or has a NUL
        why = one_line(str(error), 200)
        return Answer(2, {"error": Slug.BAD_VALUE, "message": f"not asked: {why}", "hint": "give shorter, plain texts"})
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said, out, code = await asyncio.gather(_lines(process.stderr, progress), process.stdout.read(), process.wait())
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(process.communicate(), _END_S)
            except TimeoutError:
                process.kill()
        raise
    try:
        return Answer(
            code, json.loads(out) if out.count(b"\n") < 2 else [json.loads(line) for line in out.splitlines()]
        )
    except ValueError:
        why = one_line(said[-1] if said else "it said nothing", 300)
        return Answer(code or 1, {"error": Slug.INTERNAL, "message": why, "hint": None})


async def _lines(stream: asyncio.StreamReader, progress: Callable[[str], None] | None) -> list[str]:
    """The last lines of what is said beside the document."""
    kept: list[str] = []
    async for line in stream:
        text = one_line(line.decode("utf-8", "replace").strip(), 300)
        if text:
            kept = [*kept[-9:], text]
            if progress is not None:
                progress(text)
    return kept
