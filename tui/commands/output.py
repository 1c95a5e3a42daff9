"""What commands print: documents on stdout, messages on stderr."""

import contextlib
import json
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

from tui.core.errors import EagletuiError, Slug
from tui.core.text import sanitize

T = TypeVar("T")


class Interrupted(EagletuiError):
    """Ctrl-C: what was begun on a host goes on there; `details` name it for scripts."""

    slug = Slug.INTERRUPTED
    exit_code = 130


def emit(document: object) -> None:
    """One JSON document (or one line of a stream) on stdout."""
    text = json.dumps(document, ensure_ascii=False, separators=(", ", ": "))
    # A file name that is no UTF-8 comes as lone surrogates; in JSON these are written as escapes.
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
    sys.stdout.flush()


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
