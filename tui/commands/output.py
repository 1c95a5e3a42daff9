"""What commands print: documents on stdout, messages on stderr."""

import contextlib
import io
import json
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from tui.core.errors import EagletuiError, Slug
from tui.core.masking.known import hidden, shown
from tui.core.text import escaped, sanitize

T = TypeVar("T")
_LONGEST_LINE = 1 << 20  # characters that are held of a line without end


class Interrupted(EagletuiError):
    """Ctrl-C: what was begun on a host goes on there; `details` name it for scripts."""

    slug = Slug.INTERRUPTED
    exit_code = 130


def emit(document: object, *, secrets: bool = False) -> None:
    """One JSON document (or one line of a stream) on stdout, without secrets; what could steer a terminal is escaped.

    Args:
        secrets: a program asks for the document because of what is in it: known secrets stay.
    """
    text = json.dumps(document if secrets else hidden(document), ensure_ascii=False, separators=(", ", ": "))
    sys.stdout.flush()
    sys.stdout.buffer.write(escaped(text).encode() + b"\n")
    sys.stdout.buffer.flush()


class SafeOutput(io.TextIOWrapper):
    """A standard stream through which no text reaches a terminal but through the gate; bytes go through `buffer`.

    A line is held until it ends or is flushed, so that the parts of one `print` are looked at together.
    """

    def __init__(self, stream: io.TextIOWrapper, encoding: str) -> None:
        stream.flush()
        super().__init__(
            stream.buffer, encoding, errors="backslashreplace", newline="\n", line_buffering=stream.line_buffering
        )
        self._replaced = stream  # it would close the buffer when nobody holds it any more
        self._held = ""

    def write(self, text: str) -> int:
        self._held += text
        if (end := self._held.rfind("\n") + 1) or len(self._held) > _LONGEST_LINE:
            self._pass(end or len(self._held))
        return len(text)

    def flush(self) -> None:
        if not self.closed:
            self._pass(len(self._held))
        super().flush()

    def _pass(self, end: int) -> None:
        text, self._held = self._held[:end], self._held[end:]
        super().write(shown(text))


def write_over(text: str) -> None:
    """A text in place of the line that a terminal shows on stderr; what begins it again is not for the gate."""
    sys.stderr.flush()
    sys.stderr.buffer.write(b"\r")
    sys.stderr.write(text)
    sys.stderr.flush()


def error_document(error: EagletuiError) -> dict[str, object]:
    """An error as scripts read it."""
    hint = str(error.hint) if error.hint else None
    return {"error": error.slug, "message": error.message, "hint": hint, **error.details}


def error_line(error: EagletuiError, host: str | None = None) -> str:
    """An error as a line for people; parts of it may come from a file or a command line that somebody else wrote.

    Args:
        host: which of several hosts it is about, where its message doesn't say.
    """
    text = (f"{host}: " if host else "") + error.message + (f"; {error.hint}" if error.hint else "")
    return "eagletui: " + sanitize(" ".join(text.split()))


def say(text: str) -> None:
    """A message, on stderr; nobody reading it is no reason to end."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine on a fresh event loop."""
    import asyncio
    import logging

    # What libraries log about broken links would stand between our lines; we say what matters ourselves.
    logging.getLogger().addHandler(logging.NullHandler())
    return asyncio.run(main)
